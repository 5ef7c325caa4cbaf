import torch
from torch.utils.data import DataLoader

def make(dataset, workers=0, batch=8):
    return DataLoader(dataset, batch, num_workers=workers)


loader = make(data)
