import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    data,
    num_workers=4,  # none
    shuffle=True,
    pin_memory=True
)
