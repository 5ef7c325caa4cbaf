import torch
from torch.utils.data import DataLoader

from functools import lru_cache


@lru_cache(None)
def make(workers):
    return DataLoader(data, num_workers=workers)


loader = make(0)
