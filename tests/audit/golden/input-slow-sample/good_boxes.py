import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        boxes = np.zeros((4, 4))
        for i in range(4):
            for j in range(4):
                boxes[i, j] = i * j
        return boxes
