import numpy as np
import torch
from torch import nn

def batches(size):
    while True:
        yield torch.randn(size, 8)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
supply = batches(16)
for step in range(50):
    x = next(supply)
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
