import torch
from torch.utils.data import DataLoader, TensorDataset

train_loader = DataLoader(TensorDataset(torch.zeros(9, 3)), batch_size=3, shuffle=True)
