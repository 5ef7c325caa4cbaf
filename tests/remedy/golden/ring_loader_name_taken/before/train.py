import torch
from yaml import Loader

loader = torch.utils.data.DataLoader(data)
