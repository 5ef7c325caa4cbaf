import torch
from torch import nn


losses = []
while True:
    loss = criterion(model(*next(batches)))
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if stopped():
        break
print(losses[-1])
