import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=(4 * 2))
other = DataLoader((data))
