import torch
from torch.utils.data import DataLoader

loader = DataLoader(
    data,
    batch_size=8,
    shuffle=True,  # why
    num_workers=4,
    pin_memory=True,
    # a word at the end
)
