# truth: input/respawned-workers | input/cold-start | input/too-many-workers
# bottleneck: input
# not: input/too-few-workers | input/shallow-prefetch
"""Spawned workers (the machine's policy), a handful of batches per epoch."""
import torch
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __init__(self, n=256):
        g = torch.Generator().manual_seed(5)
        self.p = torch.randn(n, 64, 3, generator=g)

    def __len__(self):
        return len(self.p)

    def __getitem__(self, i):
        p = self.p[i]
        return p - p.mean(0), p.norm(dim=1).mean()


def train(epochs=3):
    loader = DataLoader(Points(), batch_size=16, num_workers=2, multiprocessing_context="spawn")
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 128), torch.nn.ReLU(), torch.nn.Linear(128, 1))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(epochs):
        for p, target in loader:
            loss = (model(p).squeeze(1) - target).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("loss", loss.item())


if __name__ == "__main__":
    train()
