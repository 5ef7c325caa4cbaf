import torch
from torch.utils.data import DataLoader

grüße, lader = 'größe 中文', [DataLoader(übung, 8), DataLoader(prüfung, 8, num_workers=1)]
