from pathlib import Path

import numpy as np
import torch
from torch import nn

FILE = Path("pool.npy")
np.save(FILE, np.ones((1000, 8), np.float32))


def get_batch():
    return torch.from_numpy(np.load(FILE)[:16])


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    np.save(FILE, np.full((1000, 8), step, np.float32))
