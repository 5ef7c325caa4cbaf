import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths
        self.file = None

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.root, "r")
        return self.file["x"][index]
