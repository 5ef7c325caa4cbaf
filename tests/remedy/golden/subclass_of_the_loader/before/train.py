import torch
from torch.utils.data import DataLoader

class Mine(DataLoader):
    def __init__(self, data, **options):
        super().__init__(data, num_workers=0, **options)


loader = Mine(data)
