import torch
from torch import nn


def train(model, loader, optimizer):
    history = []
    for epoch in range(3):
        losses = []
        for step, (images, labels) in enumerate(loader):
            loss = nn.functional.mse_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
            if step % 10 == 0:
                # of the last ones
                losses[:] = map(float, losses)
                print(sum(losses) / len(losses), max(losses))
                losses = []
        losses[:] = map(float, losses)
        history.append(sum(losses))
    return history
