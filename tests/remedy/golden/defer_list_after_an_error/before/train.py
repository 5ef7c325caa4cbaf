import torch
from torch import nn


losses = []
try:
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
except KeyboardInterrupt:
    pass
print(losses)
