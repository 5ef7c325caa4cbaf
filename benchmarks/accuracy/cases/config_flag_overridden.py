# truth: config/overridden-flag | config/ignored-value | input/single-process | input/slow-sample | input/too-few-workers
# bottleneck: input
# has: config/ignored-value | config/overridden-flag
# args: --num-workers 2 --batch-size 16
"""--num-workers is parsed and then overwritten 'for debugging'."""
import argparse

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Stacks(Dataset):
    def __init__(self):
        self.base = np.random.default_rng(0).random((32, 220, 220))

    def __len__(self):
        return 480

    def __getitem__(self, i):
        img = self.base[i % 32]
        spectrum = np.fft.fft2(img)
        spectrum[40:-40] *= 0.1
        return torch.from_numpy(np.fft.ifft2(spectrum).real[::8, ::8].astype(np.float32)), i % 2


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--num-workers", type=int, default=0)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    return p.parse_args()


def main():
    args = parse()
    torch.manual_seed(0)
    num_workers = 0  # args.num_workers crashed on the laptop
    loader = DataLoader(Stacks(), args.batch_size, shuffle=True, num_workers=num_workers)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
    opt = torch.optim.Adam(net.parameters(), lr=args.lr)
    for epoch in range(3):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
