import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, 8) if big else DataLoader(data, 2, num_workers=4)
