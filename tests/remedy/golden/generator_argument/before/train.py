import torch
from torch.utils.data import DataLoader

loader = DataLoader(sample for sample in data)
