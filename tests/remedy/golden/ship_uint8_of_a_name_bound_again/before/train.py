from more_itertools import peekable
import torch
from torch import nn
from torch.utils.data import DataLoader


def fit(model, optimizer, data, device):
    loader = DataLoader(data, batch_size=64, num_workers=2, pin_memory=True)
    loader = peekable(loader)
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
