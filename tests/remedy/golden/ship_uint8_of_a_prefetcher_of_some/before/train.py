from hotloop.feed import DevicePrefetcher
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader


def fit(model, optimizer, data, device):
    loader = DataLoader(data, batch_size=64, num_workers=2, pin_memory=True)
    for images, labels in DevicePrefetcher(islice(loader, 10), device):
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
