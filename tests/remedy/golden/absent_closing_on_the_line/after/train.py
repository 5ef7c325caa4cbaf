import torch
from torch.utils.data import DataLoader

loader = DataLoader(data,
                    batch_size=8,
                    shuffle=True,
                    num_workers=4)
