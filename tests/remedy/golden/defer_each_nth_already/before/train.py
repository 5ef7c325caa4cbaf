import torch
from torch import nn


for step, (images, labels) in enumerate(loader):
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(loss.item())
