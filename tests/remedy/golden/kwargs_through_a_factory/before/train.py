import torch
from torch.utils.data import DataLoader

def make(dataset, **kwargs):
    return DataLoader(dataset, batch_size=8, **kwargs)


loader = make(data, num_workers=0, shuffle=True)
