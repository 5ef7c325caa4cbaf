import numpy as np
import torch
from torch import nn
from hotloop.feed import Background

data = torch.arange(8000.0).reshape(1000, 8)


def batches(size):
    order = np.random.permutation(len(data))
    for at in range(0, len(data) - size, size):
        yield data[order[at : at + size]]


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x in Background(batches(16).__next__, alone=True, again=False):
        loss = model(x).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
