import torch
from torch.utils.data import DataLoader

options = load()
loader = DataLoader(
    data,
    batch_size=8,
    num_workers=4,
    pin_memory=True,
    **options,  # more
)
