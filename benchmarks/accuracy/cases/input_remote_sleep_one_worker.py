# truth: input/too-few-workers | input/slow-sample | input/slow-storage
# bottleneck: input
# line: read_object|sleep|DataLoader\(
# not: input/too-many-workers | host/thread-oversubscription
"""Samples come from an object store that answers in 12 ms; one worker."""
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def read_object(key):
    time.sleep(0.012)
    rng = np.random.default_rng(key)
    return rng.standard_normal(256, dtype=np.float32)


class Remote(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        return torch.from_numpy(read_object(i)), i % 10


def run():
    torch.manual_seed(3)
    loader = DataLoader(Remote(), batch_size=8, shuffle=True, num_workers=1, prefetch_factor=4)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    optim = torch.optim.SGD(model.parameters(), 0.05)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
    print("done", loss.item())


if __name__ == "__main__":
    run()
