import torch
from torch import nn


def fit(model, optimizer, loader, writer, device):
    for epoch in range(3):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        writer.add_images("last", images.numpy())
