# truth: host/sync-in-step
# bottleneck: host | device
# line: item|tolist|float\(
"""Five metrics read back with .item() in the middle of every step; the device drains each time."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[layer for _ in range(40) for layer in (nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512))]).cuda()
opt = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
x = torch.randn(8192, 512, device="cuda")
history = []
for step in range(400):
    out = model(x)
    loss = out.pow(2).mean()
    stats = {"loss": loss.item(), "max": out.max().item(), "min": out.min().item(), "mean": out.mean().item()}
    opt.zero_grad()
    loss.backward()
    norm = sum(p.grad.norm().item() ** 2 for p in model.parameters()) ** 0.5
    opt.step()
    history.append((stats, norm))
print(history[-1])
