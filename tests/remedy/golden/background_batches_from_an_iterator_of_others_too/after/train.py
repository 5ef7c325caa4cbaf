import numpy as np
import torch
from torch import nn
from hotloop.feed import Background

data = torch.arange(8000.0).reshape(1000, 8)


def batches(size):
    for at in range(0, 10**9, size):
        yield data[at % 900 : at % 900 + size]


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
supply = batches(16)
next_batch = Background(lambda: next(supply), again=False)
for step in range(50):
    x = next_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(model(next_batch()).sum())
