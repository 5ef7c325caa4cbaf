import torch
from torch import nn


for images, labels in loader:
    loss = criterion(model(images), labels)
    if not math.isfinite(loss.item()):
        break
    loss.backward()
    optimizer.step()
