# truth: trend/step-outliers | host/python-in-step
# bottleneck: host | device | input
# line: rebuild|sort|for|neighbours|cdist
"""Every 50th step rebuilds the neighbour lists and takes as long as the 49 others together."""
import random

import torch
from torch import nn


def rebuild_neighbours(points, k=8):
    out = []
    for i, p in enumerate(points):
        distance = sorted((sum((a - b) ** 2 for a, b in zip(p, q)), j) for j, q in enumerate(points) if j != i)
        out.append([j for _, j in distance[:k]])
    return out


def main():
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    points = [[random.random() for _ in range(3)] for _ in range(560)]
    field = torch.randn(560, 64)
    mlp = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(mlp.parameters(), 1e-3)
    neighbours = None
    for step in range(400):
        if step % 50 == 0:
            neighbours = torch.tensor(rebuild_neighbours(points))
        around = field[neighbours].mean(1)
        loss = nn.functional.mse_loss(mlp(torch.cat([field, around], 1)), field)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        points = [[c + random.gauss(0, 1e-4) for c in p] for p in points]
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
