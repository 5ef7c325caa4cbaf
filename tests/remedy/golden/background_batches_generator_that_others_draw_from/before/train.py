import numpy as np
import torch
from torch import nn

seeded = torch.Generator().manual_seed(1)
data = torch.arange(8000.0).reshape(1000, 8)


def get_batch():
    return data[torch.randint(1000, (16,), generator=seeded)]


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(torch.rand(1, generator=seeded))
