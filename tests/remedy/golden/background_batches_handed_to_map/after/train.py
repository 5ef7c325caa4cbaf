import numpy as np
import torch
from torch import nn
from hotloop.feed import Background

def noisy(row):
    return row + float(np.random.rand())


def get_batch():
    return torch.stack(list(map(noisy, torch.randn(16, 8))))


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
next_batch = Background(get_batch, alone=True)
for step in range(50):
    x = next_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
