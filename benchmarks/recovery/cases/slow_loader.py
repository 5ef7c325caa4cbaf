# truth: input/single-process | input/slow-sample
# bottleneck: input
"""Slow storage: 16 samples of 4 ms to a batch, made in the training process; the step leaves cores free."""

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 960

    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.full((64,), i / 960), i % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(64, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Slow(), batch_size=16, shuffle=True)
    for epoch in range(4):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.015)
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
