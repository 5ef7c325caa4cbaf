import torch
from torch import nn


total = 0.0
seen = 0
for epoch in range(3):
    print("so far", total)
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        seen += 1
    if epoch == 1:
        total *= 0.5
        total /= seen
    best = min(best, total) if epoch else total
print(total)
total = 0.0
for images, labels in held_out:
    total += criterion(model(images), labels).item()
print(total)
