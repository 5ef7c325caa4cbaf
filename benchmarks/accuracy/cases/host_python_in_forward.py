# truth: host/python-in-step
# bottleneck: host | device
# line: cell|for |gates|h = |hs
# not: input/single-process | input/slow-sample
"""A recurrent cell unrolled in Python over 200 time steps with five tiny operations each."""
import torch
from torch import nn


class Unrolled(nn.Module):
    def __init__(self, inputs=4, hidden=16):
        super().__init__()
        self.x2h, self.h2h = nn.Linear(inputs, 2 * hidden), nn.Linear(hidden, 2 * hidden)
        self.out = nn.Linear(hidden, 1)
        self.hidden = hidden

    def cell(self, x, h):
        gates = self.x2h(x) + self.h2h(h)
        update, candidate = gates.chunk(2, 1)
        z = torch.sigmoid(update)
        return z * h + (1 - z) * torch.tanh(candidate)

    def forward(self, x):
        h = x.new_zeros(len(x), self.hidden)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.out(h)


torch.manual_seed(0)
torch.set_num_threads(1)
net = Unrolled()
opt = torch.optim.Adam(net.parameters(), 1e-3)
series = torch.randn(640, 200, 4)
target = series.mean((1, 2))[:, None]
for epoch in range(4):
    for i in range(0, 640, 8):
        loss = nn.functional.mse_loss(net(series[i:i + 8]), target[i:i + 8])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
