import numpy as np
import torch
from torch import nn

def noisy(row):
    return row + float(np.random.rand())


def get_batch():
    return torch.stack(list(map(noisy, torch.randn(16, 8))))


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
