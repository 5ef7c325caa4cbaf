import torch
from torch import nn


side = torch.cuda.Stream()
total = 0.0
for images, labels in loader:
    with torch.cuda.stream(side):
        following = next(batches).to("cuda", non_blocking=True)
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total)
