import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    data,
    shuffle=True,  # why
    num_workers=4,
    pin_memory=True,
    prefetch_factor=4
)
