import torch
from torch import nn


def fit(model, optimizer, loader, device):
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save({"loader": loader.state_dict()}, "last.pt")
