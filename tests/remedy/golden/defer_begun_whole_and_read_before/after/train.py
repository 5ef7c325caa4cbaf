import torch
from torch import nn


total = 0
for step, (images, labels) in enumerate(loader):
    if step % 100 == 0:
        print(total if isinstance(total, int) else float(total))
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    total += loss.detach().double()
