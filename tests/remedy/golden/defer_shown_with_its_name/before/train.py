import torch
from torch import nn


def train():
    total = 0.0
    for step, (images, labels) in enumerate(loader):
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
        if step % 100 == 0:
            print(f"{total=}")
