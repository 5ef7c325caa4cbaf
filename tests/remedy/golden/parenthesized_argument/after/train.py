import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=(4 * 2), num_workers=4)
other = DataLoader((data))
