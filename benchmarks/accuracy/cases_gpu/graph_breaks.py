# truth: device/graph-breaks | host/launch-bound | host/sync-in-step
# bottleneck: device | host
# has: device/graph-breaks
"""torch.compile on a model that prints and branches on tensors in every block."""
import torch
from torch import nn

torch.manual_seed(0)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        y = torch.relu(self.a(x))
        if y.mean().item() > 1e3:
            print("exploding")
        return x + torch.tanh(self.b(y))


model = nn.Sequential(*[Gated() for _ in range(20)]).cuda()
compiled = torch.compile(model)
opt = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(32, 64, device="cuda")
for step in range(500):
    loss = (compiled(x) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
