import torch
from torch.utils.data import DataLoader

workers = 0
if debug:
    workers = 1
loader = DataLoader(data, num_workers=workers)
