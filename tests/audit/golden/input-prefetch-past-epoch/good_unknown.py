import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(load(), labels)
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=8, prefetch_factor=8)
