import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.from_numpy(np.load(self.paths[index]))


def make_loader(paths):
    return DataLoader(Frames("data", paths), batch_size=32, shuffle=True, num_workers=4)
