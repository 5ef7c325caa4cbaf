import torch
from torch import nn


total = 0
ema = 0.0
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    total = total + loss.detach().double()
    ema = 0.9 * ema + 0.1 * loss.detach().double()

total = float(total) / len(loader)
print("mean", total, "average", float(ema))
