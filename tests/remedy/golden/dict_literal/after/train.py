import torch
from torch.utils.data import DataLoader

options = {
    'batch_size': 8,
    'num_workers': 4,  # none
}
loader = DataLoader(data, **options)
