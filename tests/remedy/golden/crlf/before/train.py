import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    data,
    num_workers=0,  # none
    shuffle=True
)
