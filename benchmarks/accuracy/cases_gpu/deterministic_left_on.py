# truth: device/deterministic-on | device/amp-off | device/tf32-off | device/channels-last-off
# bottleneck: device
# has: device/deterministic-on
"""Deterministic algorithms switched on for a test and left on."""
import os

os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
import torch
from torch import nn

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.deterministic = True
model = nn.Sequential(nn.Conv2d(32, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(),
                      nn.Conv2d(128, 32, 3, padding=1)).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(32, 32, 96, 96, device="cuda")
for step in range(120):
    loss = (model(x) - x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
