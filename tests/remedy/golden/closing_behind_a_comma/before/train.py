import torch
from torch.utils.data import DataLoader

loader = DataLoader(data,
                    shuffle=True,)
