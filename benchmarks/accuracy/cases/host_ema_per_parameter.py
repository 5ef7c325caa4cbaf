# truth: host/python-in-step
# bottleneck: host
# line: ema|shadow|mul_|add_|for |state_dict|copy|lerp
# not: cadence/checkpoint | input/single-process
"""Exponential moving average kept by walking over the state dict after each update."""
import copy

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.999):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ema_p, p in zip(self.model.parameters(), model.parameters()):
            ema_p.mul_(self.decay)
            ema_p.add_(p.detach() * (1 - self.decay))
        for ema_b, b in zip(self.model.buffers(), model.buffers()):
            ema_b.copy_(b)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.block = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width))

    def forward(self, x):
        return x + self.block(x)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(8, 640), Residual(640), Residual(640), Residual(640), nn.Linear(640, 1))
    ema = [EMA(model, d) for d in (0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99995)]
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = [(torch.randn(2, 8), torch.randn(2, 1)) for _ in range(50)]
    for epoch in range(12):
        for x, y in data:
            loss = nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            for e in ema:
                e.update(model)
    print(loss.item())


main()
