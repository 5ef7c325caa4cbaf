import numpy as np
import torch
from torch import nn

noise = 0.0


def get_batch():
    return torch.randn(16, 8) * noise


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    noise = step / 50
