# truth: memory/device-growth
# bottleneck: device
"""Predictions with their graphs are kept for a summary at the end."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
net = nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
kept = []
for step in range(200):
    x = torch.randn(4096, 2048, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = net(x)
        loss = out.float().pow(2).mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
    kept.append(out)
print(len(kept), loss.item())
