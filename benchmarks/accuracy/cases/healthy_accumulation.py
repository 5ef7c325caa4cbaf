# healthy
# bottleneck: device
"""Gradient accumulation over four micro-batches."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(480, 1, 64, 64), torch.rand(480, 1, 64, 64))
    net = nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
        nn.Conv2d(24, 1, 3, padding=1),
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    accumulate = 4
    for epoch in range(3):
        loader = DataLoader(data, batch_size=8, shuffle=True)
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.l1_loss(net(x), y) / accumulate
            loss.backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        print("epoch", epoch, loss.item() * accumulate)


main()
