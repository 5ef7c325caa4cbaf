"""Accelerate: a network that computes."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def images(size):
    return TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,)))


def main():
    accelerator = Accelerator(cpu=True)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train = DataLoader(images(960), batch_size=32, shuffle=True)
    test = DataLoader(images(64), batch_size=32)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)
    step = 0
    for epoch in range(1):
        for inputs, targets in train:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % 30 == 0:
                model.eval()
                right = 0
                with torch.inference_mode():
                    for inputs, targets in test:
                        right += (model(inputs).argmax(1) == targets).sum().item()
                model.train()
                accelerator.print(f"{step}: {right / 320:.3f}")


if __name__ == "__main__":
    main()
