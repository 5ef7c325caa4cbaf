import torch
from torch.utils.data import DataLoader

import os

loader = DataLoader(data, num_workers=int(os.environ.get('WORKERS', 4)))
