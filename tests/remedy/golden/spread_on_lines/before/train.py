import torch
from torch.utils.data import DataLoader

options = load()
loader = DataLoader(
    data,
    batch_size=8,
    **options,  # more
)
