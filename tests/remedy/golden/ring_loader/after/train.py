import torch
from torch.utils.data import DataLoader
from hotloop.feed import Loader

loader = Loader(data, batch_size=8, num_workers=2, prefetch_factor=8)
