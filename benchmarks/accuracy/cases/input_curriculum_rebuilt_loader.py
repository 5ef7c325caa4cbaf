# truth: input/respawned-workers
# bottleneck: input
# line: DataLoader
# not: input/too-few-workers | input/cold-start
"""A curriculum: every epoch takes some more samples and builds its loader anew, with two workers."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, Dataset


class Data(Dataset):
    def __init__(self, n=2048):
        self.x = torch.randn(n, 64)
        self.y = self.x[:, :1].sin()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        return (x - x.mean()) / x.std(), self.y[i]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Data()
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    hard = data.x.abs().sum(1)
    for epoch in range(60):
        take = 256 + 16 * epoch
        idx = hard.argsort()[:take].tolist()
        loader = DataLoader(Subset(data, idx), batch_size=32, shuffle=True, num_workers=2)
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()


if __name__ == "__main__":
    main()
