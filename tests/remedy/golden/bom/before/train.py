import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, 8, num_workers=0)
