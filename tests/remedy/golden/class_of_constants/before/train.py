import torch
from torch.utils.data import DataLoader

from config import CFG

loader = DataLoader(data, num_workers=CFG.num_workers)
