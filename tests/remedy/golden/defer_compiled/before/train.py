import torch
from torch import nn


@torch.compile
def train():
    total = 0.0
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
