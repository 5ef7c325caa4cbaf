import torch
from torch import nn


for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.update(loss.item(), images.size(0))
