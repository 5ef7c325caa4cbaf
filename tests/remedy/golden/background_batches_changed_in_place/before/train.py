import numpy as np
import torch
from torch import nn

data = torch.arange(8000.0).reshape(1000, 8)


def get_batch():
    at = int(torch.randint(900, ()))
    return data[at : at + 16]


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    x *= 0.5
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
