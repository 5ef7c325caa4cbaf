import torch
from torch.utils.data import DataLoader

options = dict(batch_size=8, num_workers=4)
loader = DataLoader(data, **options)
