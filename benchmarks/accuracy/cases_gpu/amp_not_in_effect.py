# truth: device/amp-not-in-effect | device/amp-off | device/tf32-off
# bottleneck: device
# args: --amp
"""--amp is parsed, the autocast is opened around the wrong lines."""
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
args = parser.parse_args()
torch.manual_seed(0)
model = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(4096, 4096), nn.GELU())]).cuda()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(4096, 4096, device="cuda")
for step in range(120):
    out = model(x)
    with torch.autocast("cuda", enabled=args.amp):
        loss = (out - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
