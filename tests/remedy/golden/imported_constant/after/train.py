import torch
from torch.utils.data import DataLoader

from settings import WORKERS

loader = DataLoader(data, num_workers=WORKERS)
