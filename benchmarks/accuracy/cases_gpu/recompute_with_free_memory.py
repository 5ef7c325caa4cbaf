# truth: device/recompute-checkpointing
# bottleneck: device
"""Activation checkpointing on every block of a model that would fit ten times over."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")


class Stack(nn.Module):
    def __init__(self, depth=12, width=2048):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(depth)
        )

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x


model = Stack().cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
x = torch.randn(4096, 2048, device="cuda")
for step in range(80):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
