import os

import numpy as np
import torch
from torch import nn

folder = "."
np.ones((1000, 8), np.float32).tofile(os.path.join(folder, "pool.bin"))
pool = np.memmap(os.path.join(folder, "pool.bin"), np.float32, mode="r", shape=(1000, 8))


def get_batch():
    return torch.from_numpy(np.array(pool[:16]))


def refill(name, step):
    with open(f"{folder}/{name}.bin", "r+b") as file:
        file.write(np.full((1000, 8), step, np.float32).tobytes())


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    refill("pool", step)
