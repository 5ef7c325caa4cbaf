# truth: device/optimizer-not-fused | host/launch-bound
# bottleneck: device | host
"""Adam updates its 1,200 small parameters one at a time (foreach switched off)."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.ModuleList(nn.Linear(64, 64) for _ in range(600)).cuda()
opt = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
weights = torch.randn(600, 1, device="cuda")
x = torch.randn(256, 64, device="cuda")
for step in range(60):
    stacked = torch.stack([m.weight for m in model])
    bias = torch.stack([m.bias for m in model])
    loss = torch.baddbmm(bias[:, None], x.expand(600, -1, -1), stacked).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
