# truth: input/worker-transport | input/too-many-workers
# bottleneck: input
# not: input/too-few-workers | input/slow-sample
"""Volumes already in memory as float32; two workers copy 48 MB a batch through shared memory."""
import torch
from torch.utils.data import DataLoader, Dataset


class Volumes(Dataset):
    def __init__(self):
        self.vol = torch.randn(32, 3, 1024, 512)

    def __len__(self):
        return 900

    def __getitem__(self, i):
        return self.vol[i % 32], i % 5


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Volumes(), batch_size=8, num_workers=2)
    model = torch.nn.Linear(3, 5)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            pooled = x[:, :, 480:544, 224:288].mean((2, 3))
            loss = torch.nn.functional.cross_entropy(model(pooled), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
