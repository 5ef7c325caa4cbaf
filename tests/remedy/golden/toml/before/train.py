import tomllib
import torch
from torch.utils.data import DataLoader

with open('c.toml', 'rb') as f:
    config = tomllib.load(f)
loader = DataLoader(data, num_workers=config['loader']['num_workers'])
