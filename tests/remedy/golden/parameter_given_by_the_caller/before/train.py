import torch
from torch.utils.data import DataLoader

def make(dataset, workers):
    return DataLoader(dataset, 8, num_workers=workers)


def main():
    train = make(data, 0)
    val = make(other, 2)


main()
