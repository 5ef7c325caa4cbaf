import numpy as np
import torch
from torch import nn
from hotloop.feed import Background

rng = np.random.default_rng(0)
data = rng.random((1000, 8), dtype=np.float32)


def get_batch():
    return torch.from_numpy(data[rng.integers(0, len(data), 16)])


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
next_batch = Background(get_batch, again=False)
for step in range(50):
    x = next_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
