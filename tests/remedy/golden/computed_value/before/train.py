import torch
from torch.utils.data import DataLoader

import os

loader = DataLoader(data, num_workers=min(2, os.cpu_count()))
