# truth: trend/misleading-metric | input/single-process | input/slow-sample
# bottleneck: input
# has: trend/misleading-metric
"""Prints 'data 0.0 ms' in every step: the timer starts after the batch has arrived."""
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Spectra(Dataset):
    def __len__(self):
        return 800

    def __getitem__(self, i):
        rng = np.random.default_rng(i)
        t = np.arange(30_000) / 30_000
        wave = sum(rng.random() * np.sin(2 * np.pi * (k + 1) * 40 * t) for k in range(12))
        return torch.from_numpy(np.abs(np.fft.rfft(wave))[:512].astype(np.float32)), i % 3


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Spectra(), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 3))
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            end = time.time()
            data_time = time.time() - end
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            batch_time = time.time() - end
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} data {data_time * 1e3:.1f} ms batch {batch_time * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
