import torch
from torch.utils.data import DataLoader

NUM_WORKERS = 0  # of each
train = DataLoader(data, num_workers=NUM_WORKERS)
val = DataLoader(data, num_workers=NUM_WORKERS)
