import torch
from torch import nn


def train(model, bar):
    total = 0.0
    for images, labels in bar:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        bar.set_postfix(loss=total)
    return total
