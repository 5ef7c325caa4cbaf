import torch
from torch import nn


total = torch.zeros(())
for images, labels in loader:
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total)
