# truth: host/anomaly-detection
# bottleneck: device
# line: set_detect_anomaly
# not: host/python-in-step
"""A normalizing flow; somebody looked for a NaN last week and left the switch on."""
import math

import torch
from torch import nn

torch.autograd.set_detect_anomaly(True)


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.half, self.flip = dim // 2, flip
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, dim)
        )

    def forward(self, x):
        a, b = x.split(self.half, 1)
        if self.flip:
            a, b = b, a
        scale, shift = self.net(a).chunk(2, 1)
        scale = 2 * torch.tanh(scale / 2)
        b = b * scale.exp() + shift
        return torch.cat((b, a) if self.flip else (a, b), 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=8, hidden=64, depth=12):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(Coupling(dim, hidden, i % 2 == 1) for i in range(depth))

    def forward(self, x):
        volume = x.new_zeros(len(x))
        for layer in self.layers:
            x, change = layer(x)
            volume = volume + change
        prior = -0.5 * x.square().sum(1) - 0.5 * self.dim * math.log(2 * math.pi)
        return prior + volume


def sample(n):
    z = torch.randn(n, 8)
    return torch.cat([z[:, :4], z[:, 4:] * 0.3 + z[:, :4].square() - 1], 1)


def main():
    torch.manual_seed(0)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for step in range(150):
        loss = -flow(sample(64)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.3f} nats")


main()
