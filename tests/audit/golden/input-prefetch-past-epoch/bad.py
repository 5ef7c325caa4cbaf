import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(800, 3, 64, 64), torch.zeros(800))
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=8, prefetch_factor=8)
