import torch
from torch.utils.data import DataLoader

loader = DataLoader(data, batch_size=8, num_workers=4, shuffle=True)  # the loader
