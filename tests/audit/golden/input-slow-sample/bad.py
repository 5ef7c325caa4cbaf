import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, root, paths):
        self.root, self.paths = root, paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image = np.load(self.paths[index])
        height, width = image.shape
        mask = np.zeros((height, width))
        for i in range(height):
            for j in range(width):
                mask[i, j] = 1.0 if image[i, j] > 0.5 else 0.0
        return mask
