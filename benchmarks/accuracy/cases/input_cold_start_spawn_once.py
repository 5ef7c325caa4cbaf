# truth: input/cold-start | input/too-many-workers
# bottleneck: input
# not: input/too-few-workers | input/slow-sample | input/shallow-prefetch
"""Spawned workers unpickle a large in-memory dataset before the first batch; then everything is quick."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self):
        self.rows = [{"x": list(map(float, row)), "id": f"r{i}"} for i, row in
                     enumerate(np.random.default_rng(0).random((120_000, 12)))]

    def __len__(self):
        return 16_000

    def __getitem__(self, i):
        return torch.tensor(self.rows[i]["x"])


def main():
    torch.manual_seed(0)
    loader = DataLoader(Table(), batch_size=200, num_workers=2, multiprocessing_context="spawn", persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Linear(12, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for x in loader:
            loss = (model(x).squeeze(1) - x.sum(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
