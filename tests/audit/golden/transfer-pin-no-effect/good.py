import torch
from torch.utils.data import DataLoader


class Batch:
    def __init__(self, samples):
        self.x = torch.stack(samples)

    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self


def collate(samples):
    return Batch(samples)


def make(dataset):
    return DataLoader(dataset, batch_size=8, collate_fn=collate, pin_memory=True)
