import torch
from torch import nn


total = 0.0
seen = 0
for epoch in range(3):
    print("so far", float(total))
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.detach().double()
        seen += 1
    if epoch == 1:
        total = float(total) * 0.5
        total /= seen
    best = min(best, float(total)) if epoch else float(total)
print(float(total))
total = 0.0
for images, labels in held_out:
    total += criterion(model(images), labels).item()
print(total)
