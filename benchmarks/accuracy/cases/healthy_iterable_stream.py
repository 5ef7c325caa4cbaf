# healthy
# bottleneck: device
"""A cheap IterableDataset that makes whole batches."""
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Waves(IterableDataset):
    def __init__(self, num_batches, batch_size):
        self.num_batches, self.batch_size = num_batches, batch_size

    def __iter__(self):
        g = torch.Generator().manual_seed(0)
        for _ in range(self.num_batches):
            x = torch.randn(self.batch_size, 96, 16, generator=g)
            yield x, x.cumsum(1)[:, -1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(16, 96, num_layers=2, batch_first=True)
        self.out = nn.Linear(96, 16)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


torch.manual_seed(0)
torch.set_num_threads(1)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for n, (x, y) in enumerate(DataLoader(Waves(110, 24), batch_size=None)):
    loss = nn.functional.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if n % 25 == 0:
        print(n, loss.item())
