import torch
from torch import nn


losses = []
for step, (images, labels) in enumerate(loader):
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 10 == 0:
        print(sum(losses) / len(losses))
