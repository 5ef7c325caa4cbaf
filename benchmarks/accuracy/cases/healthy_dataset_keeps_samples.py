# healthy
# bottleneck: device
"""A dataset in memory that keeps what it converted."""
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __init__(self):
        self.source = np.random.default_rng(0).integers(0, 255, (1000, 3, 32, 32)).astype(np.uint8)
        self.cache = {}

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = torch.from_numpy(np.array(self.source[i])).float() / 255
        return self.cache[i], i % 10


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 24, 3, 1, 1), nn.ReLU(), nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(), nn.Conv2d(48, 48, 3, 2, 1), nn.ReLU(),
    nn.Flatten(), nn.Linear(48 * 64, 10),
)
opt = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
loader = DataLoader(Cached(), batch_size=100, shuffle=True)
t0 = time.time()
for epoch in range(6):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(net(images), labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
print(f"TRAIN {time.time() - t0:.2f}")
