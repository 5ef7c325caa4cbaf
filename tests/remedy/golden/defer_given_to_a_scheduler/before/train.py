import torch
from torch import nn


total = 0.0
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    value = loss.item()
    total += value
    scheduler.step(value)
print(total)
