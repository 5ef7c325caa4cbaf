import torch
from torch import nn


def step(images, labels):
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


total = 0.0
for images, labels in loader:
    total += step(images, labels)
print(total)
