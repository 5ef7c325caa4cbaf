import numpy as np
import torch
from torch import nn

from settings import frames


def get_batch():
    return frames[torch.randint(len(frames), (16,))]


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    frames.mul_(0.9)
