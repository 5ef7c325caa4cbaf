import torch
from torch import nn


def train():
    total = 0.0
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(loader)
    return total
