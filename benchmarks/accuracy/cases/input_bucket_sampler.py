# truth: input/cold-start
# bottleneck: input
# line: sorted|lambda
# not: input/slow-sample | input/single-process
"""Batches of like lengths: a batch sampler sorts all samples by a Python key before every short epoch."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self, n=40_000):
        self.texts = [[random.randint(1, 99) for _ in range(random.randint(3, 12))] for _ in range(n)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return self.texts[i]


class Buckets:
    def __init__(self, data, batch_size, batches):
        self.data, self.batch_size, self.batches = data, batch_size, batches

    def __len__(self):
        return self.batches

    def __iter__(self):
        order = sorted(range(len(self.data)), key=lambda i: (len(self.data[i]), random.random()))
        batches = [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]
        random.shuffle(batches)
        yield from batches[: self.batches]


def pad(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [0] * (longest - len(row)) for row in rows])


random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
data = Texts()
loader = DataLoader(data, batch_sampler=Buckets(data, 32, 40), collate_fn=pad)
net = nn.Sequential(nn.EmbeddingBag(100, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.Adam(net.parameters())
for epoch in range(30):
    for x in loader:
        loss = net(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
