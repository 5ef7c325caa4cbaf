import torch
from torch.utils.data import DataLoader

options = {"batch_size": 8}
if torch.cuda.is_available():
    options.update(num_workers=1)
loader = DataLoader(data, **(options if train else {}))
