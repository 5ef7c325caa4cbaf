import torch
from torch.utils.data import DataLoader

from functools import partial

make = partial(DataLoader, batch_size=8)
loader = make(data, num_workers=0)
