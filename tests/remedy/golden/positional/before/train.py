import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, 8, True, None, None, 0)
