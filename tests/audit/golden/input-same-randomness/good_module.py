import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

rng = np.random.default_rng()


class Frames(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return np.load(self.paths[index]) + rng.normal()


def make_loader(paths):
    return DataLoader(Frames(paths), batch_size=32, shuffle=True, num_workers=0)
