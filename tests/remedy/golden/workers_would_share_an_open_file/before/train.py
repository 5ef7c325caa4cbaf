import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, path):
        self.file = open(path, "rb", buffering=0)

    def __len__(self):
        return 480

    def __getitem__(self, i):
        self.file.seek(i * 256)
        return torch.from_numpy(np.frombuffer(self.file.read(256), np.float32).copy())


loader = DataLoader(Records("records.dat"), 16, shuffle=True)
for rows in loader:
    print(rows.sum())
