import numpy as np
import torch
from torch import nn

def get_batch():
    return torch.randn(16, 8) @ torch.ones(8, 8)


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    if step % 2:
        with torch.autocast("cpu"):
            x = get_batch()
    else:
        x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
