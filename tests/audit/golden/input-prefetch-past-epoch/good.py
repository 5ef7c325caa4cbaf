import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(8000, 3, 64, 64), torch.zeros(8000))
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=8, prefetch_factor=4)
