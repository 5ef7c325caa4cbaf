import torch
from torch.utils.data import DataLoader

def make(dataset, workers=4, batch=8):
    return DataLoader(dataset, batch, num_workers=workers)


loader = make(data)
