import numpy as np
import torch
from torch import nn

import settings


def get_batch():
    return torch.randn(settings.SIZE, 8)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    settings.SIZE = 16 + step
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
