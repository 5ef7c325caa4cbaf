# truth: input/shallow-prefetch | input/straggling-samples
# bottleneck: input | device
"""Chunked archive: every 40th batch has to open the next chunk, the queue is one batch deep."""
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Chunks(Dataset):
    chunk = -1

    def __len__(self):
        return 2240

    def __getitem__(self, i):
        if i // 320 != self.chunk:
            self.chunk = i // 320
            time.sleep(0.6)
        g = torch.Generator().manual_seed(i)
        return torch.randn(128, generator=g), i % 2


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(128, 2400), torch.nn.ReLU(), torch.nn.Linear(2400, 2400),
                              torch.nn.ReLU(), torch.nn.Linear(2400, 2))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    loader = DataLoader(Chunks(), batch_size=8, num_workers=1, prefetch_factor=1)
    for x, y in loader:
        loss = torch.nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(loss.item())


if __name__ == "__main__":
    main()
