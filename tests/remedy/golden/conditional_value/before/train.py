import torch
from torch.utils.data import DataLoader

def make(dataset, training):
    return DataLoader(dataset, 8, num_workers=0 if training else 2)


train = make(data, True)
