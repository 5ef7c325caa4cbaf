import torch
from torch import nn


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        running = 0.0
        for step, (images, labels) in enumerate(loader):
            loss = nn.functional.mse_loss(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach().double()
            if step % 2000 == 1999:
                print(f"[{epoch + 1}, {step + 1:5d}] loss: {float(running) / 2000:.3f}")
                print(loss.item())
                running = 0.0
