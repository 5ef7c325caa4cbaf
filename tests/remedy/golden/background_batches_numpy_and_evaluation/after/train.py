import numpy as np
import torch
from torch import nn
from hotloop.feed import Background

data = np.arange(8000, dtype=np.float32).reshape(1000, 8)


def get_batch():
    at = np.random.randint(0, len(data), 16)
    return torch.from_numpy(data[at])


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
next_batch = Background(get_batch, alone=True)
for step in range(50):
    x = next_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(model(next_batch() * 2).sum())
