# truth: input/respawned-workers | input/cold-start
# bottleneck: input
# not: input/too-few-workers | input/shallow-prefetch
"""Each worker builds the index of the archive when it is first asked, and workers do not live long."""
import torch
from torch.utils.data import DataLoader, Dataset


class Archive(Dataset):
    def __init__(self, n=600):
        self.n = n
        self.index = None

    def build_index(self):
        return {f"rec-{i:07d}": (i * 2654435761) % 2**32 for i in range(900_000)}

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.index is None:
            self.index = self.build_index()
        seed = self.index[f"rec-{i:07d}"]
        g = torch.Generator().manual_seed(seed % 2**31)
        return torch.randn(40, generator=g), seed % 2


def main():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    opt = torch.optim.Adam(net.parameters())
    loader = DataLoader(Archive(), batch_size=20, num_workers=2, shuffle=True)
    for epoch in range(7):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
