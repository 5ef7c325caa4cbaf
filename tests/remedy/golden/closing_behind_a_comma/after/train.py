import torch
from torch.utils.data import DataLoader

loader = DataLoader(data,
                    shuffle=True,
                    num_workers=4,
                    pin_memory=True,)
