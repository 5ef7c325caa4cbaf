# -*- coding: latin-1 -*-
import torch
from torch.utils.data import DataLoader

# grüße
loader = DataLoader(data, 8, num_workers=0)
