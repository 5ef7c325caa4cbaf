import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels
        self.mean = rows.mean(0)
        self.std = rows.std(0)

    def __len__(self):
        return self.rows.shape[0]

    def __getitem__(self, i):
        row = self.rows[i]
        return (row - self.mean) / (self.std + 1e-8), self.labels[i]


def fit(model, optimizer, rows, labels):
    for x, y in DataLoader(Rows(rows, labels), batch_size=8):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
