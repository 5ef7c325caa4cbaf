from sklearn.preprocessing import StandardScaler
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths
        self.scaler = StandardScaler()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if self.scaler is not None:
            return self.scaler.transform(self.rows[index])
        return self.rows[index]
