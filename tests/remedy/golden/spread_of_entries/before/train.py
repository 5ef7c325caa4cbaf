import torch
from torch.utils.data import DataLoader

on_gpu = torch.cuda.is_available()
options = {"pin_memory": True} if on_gpu else {}
loader = DataLoader(data, **{"batch_size": 8, **options})
