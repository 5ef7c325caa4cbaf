import torch
from torch import nn


value = 0.0
for images, labels in loader:
    if value > 10:
        break
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    value = loss.item()
