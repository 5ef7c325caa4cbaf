import torch
from torch.utils.data import DataLoader

for workers in (0, 2):
    loader = DataLoader(data, num_workers=workers)
