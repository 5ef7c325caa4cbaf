import torch
from torch.utils.data import DataLoader

options = {'num_workers': 2}
options['num_workers'] = 0
loader = DataLoader(data, **options)
