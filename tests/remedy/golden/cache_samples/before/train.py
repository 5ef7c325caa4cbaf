import torch
from torch.utils.data import DataLoader

loader = DataLoader(ImageFolder('data'), batch_size=8)
