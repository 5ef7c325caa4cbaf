import numpy as np
import torch
from torch import nn

def some():
    return torch.randn(16, 8)


def others():
    return torch.rand(16, 8)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = some()
    x = x + others()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
