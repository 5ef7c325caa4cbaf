# truth: device/batch-too-small
# bottleneck: device
# line: batch_size=1
"""One sample a step: every operation takes what its call takes, and thirty samples would take as long."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(1500, 24)
data = TensorDataset(x, (x[:, :3].sum(1) > 0).long())
loader = DataLoader(data, batch_size=1, shuffle=True)
net = nn.Sequential(
    nn.Linear(24, 64),
    nn.Tanh(),
    nn.Linear(64, 64),
    nn.Tanh(),
    nn.Linear(64, 64),
    nn.Tanh(),
    nn.Linear(64, 64),
    nn.Tanh(),
    nn.Linear(64, 2),
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(3):
    for features, label in loader:
        loss = nn.functional.cross_entropy(net(features), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
