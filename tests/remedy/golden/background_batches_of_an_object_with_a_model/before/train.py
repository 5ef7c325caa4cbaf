import numpy as np
import torch
from torch import nn

class Supply:
    def __init__(self, model):
        self.model = model

    def next_batch(self):
        x = torch.ones(16, 8)
        return x + self.model(x).detach()


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
supply = Supply(model)
for step in range(50):
    x = supply.next_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
