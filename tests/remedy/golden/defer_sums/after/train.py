import torch
from torch import nn


def train_epoch(model, loader, optimizer, device):
    model.train()
    running_loss = 0.0
    correct, seen = 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running_loss += loss.detach().double() * images.size(0)  # a mean of the batch
        correct += (logits.argmax(1) == labels).sum()
        seen += labels.size(0)
    return float(running_loss) / seen, int(correct) / seen
