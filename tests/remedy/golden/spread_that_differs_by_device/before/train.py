import torch
from torch.utils.data import DataLoader

on_gpu = torch.cuda.is_available()
options = {'num_workers': 1, 'pin_memory': True} if on_gpu else {}
loader = DataLoader(data,
                    batch_size=8, **options)
