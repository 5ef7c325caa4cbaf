# truth: input/per-sample-conversion | input/slow-sample | input/single-process
# bottleneck: input
# line: FloatTensor|torch\.tensor
"""Price series kept as Python lists, converted whenever a sample is asked for."""
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Series(Dataset):
    def __init__(self):
        self.rows = [[random.gauss(0, 1) for _ in range(1500)] for _ in range(1500)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        x = torch.FloatTensor(row[:-1])
        return x, torch.FloatTensor([row[-1]])


model = nn.Sequential(nn.Linear(1499, 32), nn.Tanh(), nn.Linear(32, 1))
opt = torch.optim.Adam(model.parameters())
loader = DataLoader(Series(), batch_size=50, shuffle=True)
for epoch in range(25):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print("loss", loss.item())
