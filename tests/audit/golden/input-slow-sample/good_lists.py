import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        rows = [[0] * 8 for _ in self.paths]
        for i in range(len(self.paths)):
            for j in range(len(rows[i])):
                rows[i][j] = j
        return rows
