import torch
from torch.utils.data import DataLoader

options = load_options()
loader = DataLoader(data, **options)
