# truth: device/recompute-checkpointing
# bottleneck: device
# line: return x \+ self\.mix
# not: input/single-process
"""A residual network for tabular data, every block checkpointed though memory is plentiful."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.Sequential(nn.Linear(dim, 3 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(3 * dim, dim))

    def forward(self, x):
        return x + self.mix(self.norm(x))


class Tabular(nn.Module):
    def __init__(self, columns=40, dim=192, depth=8):
        super().__init__()
        self.stem = nn.Linear(columns, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 5)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = TensorDataset(torch.randn(8192, 40), torch.randint(0, 5, (8192,)))
    loader = DataLoader(rows, batch_size=64, shuffle=True)
    model = Tabular()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    main()
