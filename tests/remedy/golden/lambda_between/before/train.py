import torch
from torch.utils.data import DataLoader

make = lambda dataset, workers=0: DataLoader(dataset, num_workers=workers)
loader = make(data)
