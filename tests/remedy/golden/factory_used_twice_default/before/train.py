import torch
from torch.utils.data import DataLoader

def make(dataset, workers=0):
    return DataLoader(dataset, 8, num_workers=workers)


train = make(data)
val = make(other)
