import torch
from torch.utils.data import DataLoader

options = {'batch_size': 8}
loader = DataLoader(data, num_workers=4, **options)
