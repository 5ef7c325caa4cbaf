# healthy
# has: device/float64
# bottleneck: device
"""The heat equation: the loss holds second derivatives of the network, whose small residuals need float64."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
net = nn.Sequential(nn.Linear(2, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(160):
    points = torch.rand(600, 2, requires_grad=True)
    u = net(points)
    first = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
    start = net(torch.stack([points[:, 0].detach(), torch.zeros(600)], 1)).squeeze(1)
    loss = (first[:, 1] - 0.1 * second).pow(2).mean() + (start - torch.sin(torch.pi * points[:, 0])).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(step, loss.item())
