import torch
from torch.utils.data import DataLoader
from hotloop.feed import cached

loader = DataLoader(cached(ImageFolder('data'), max_bytes="4GiB"), batch_size=8)
