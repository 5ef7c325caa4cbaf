# healthy
# bottleneck: device
"""Samples that wait for a server, hidden completely behind the step by two workers."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Served(Dataset):
    def __len__(self):
        return 900

    def __getitem__(self, i):
        time.sleep(0.002)
        g = torch.Generator().manual_seed(i)
        return torch.randn(256, generator=g), i % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Served(), batch_size=6, num_workers=2, prefetch_factor=4)
    model = nn.Sequential(nn.Linear(256, 4000), nn.ReLU(), nn.Linear(4000, 4000), nn.ReLU(), nn.Linear(4000, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
