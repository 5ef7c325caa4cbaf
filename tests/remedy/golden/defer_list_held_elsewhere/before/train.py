import torch
from torch import nn


losses = []
state = {"losses": losses}
for epoch in range(3):
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        show(state)
