import numpy as np
import torch
from torch import nn

from collections import deque


class Memory:
    def __init__(self):
        self.items = deque(torch.ones(8) for _ in range(20))

    def sample(self, num):
        return [self.items[i] for i in torch.randint(len(self.items), (num,))]


memory = Memory()


def get_batch():
    return torch.stack(memory.sample(16))


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
