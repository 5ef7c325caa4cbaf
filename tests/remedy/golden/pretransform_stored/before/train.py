import os
import pickle

import numpy as np
import torch
from sklearn.preprocessing import StandardScaler
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    """Windows of a series."""

    def __init__(self, data, scaler, length=20):
        self.data = data
        self.scaler = scaler
        self.length = length

    def __len__(self):
        return len(self.data) - self.length

    def __getitem__(self, i):
        window = self.scaler.transform(self.data[i : i + self.length])
        return torch.from_numpy(window).float(), i % 4


def train(path, model, optimizer):
    if os.path.exists("windows.pkl"):
        with open("windows.pkl", "rb") as file:
            windows = pickle.load(file)
    else:
        data = np.load(path)
        windows = Windows(data, StandardScaler().fit(data))
        with open("windows.pkl", "wb") as file:
            pickle.dump(windows, file)
    for x, y in DataLoader(windows, batch_size=8, shuffle=True):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
