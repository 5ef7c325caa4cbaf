import numpy as np
import torch
from torch import nn

memory = [torch.ones(8)] * 64


def batches(size):
    for at in range(0, len(memory) - size, size):
        yield torch.stack(memory[at : at + size])


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x in batches(16):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.append(x[0].clone())
