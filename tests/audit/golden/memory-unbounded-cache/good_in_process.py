import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, paths):
        self.paths = paths
        self.cache = {}

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = torch.from_numpy(np.load(self.paths[index]))
        return self.cache[index]


loader = DataLoader(Frames(["a.npy", "b.npy"]), batch_size=2, shuffle=True)
