import torch
from torch import nn


def fit(model, optimizer, loader, device):
    batches = iter(loader)
    while True:
        for images, labels in batches:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if torch.rand(()) < 0.1:
                break
