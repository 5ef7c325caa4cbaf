# truth: memory/unbounded-cache | memory/host-growth
# bottleneck: device
"""The dataset keeps every augmented sample it ever made, under a key that never comes again."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self):
        self.raw = np.random.default_rng(0).random((400, 96, 96), dtype=np.float32)
        self.cache = {}
        self.draws = 0

    def __len__(self):
        return 400

    def __getitem__(self, i):
        self.draws += 1
        key = (i, self.draws % 1_000_003)
        if key not in self.cache:
            shift = self.draws % 90
            self.cache[key] = np.roll(self.raw[i], shift, axis=0)[None]
        return torch.from_numpy(self.cache[key]), i % 4


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Conv2d(1, 32, 5, stride=2), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Cached(), batch_size=16, shuffle=True)
    for epoch in range(46):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
