from sklearn.preprocessing import StandardScaler
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths
        self.rows = StandardScaler().fit_transform(paths)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return self.rows[index]
