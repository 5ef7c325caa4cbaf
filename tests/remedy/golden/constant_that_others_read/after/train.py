import settings
import torch
from settings import NUM_WORKERS
from torch.utils.data import DataLoader

torch.set_num_threads(max(1, 2 - NUM_WORKERS))
train = DataLoader(data, num_workers=NUM_WORKERS)
val = DataLoader(data, num_workers=settings.NUM_WORKERS)
