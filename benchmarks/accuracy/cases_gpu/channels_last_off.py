# truth: device/channels-last-off | device/cudnn-benchmark-off | device/compile-off
# bottleneck: device
"""Convolutions in bf16 with NCHW activations; cudnn.benchmark left off."""
import torch
from torch import nn

torch.manual_seed(0)


def block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())


model = nn.Sequential(block(64, 128), block(128, 256), block(256, 256), block(256, 256), nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), nn.Linear(256, 10)).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(64, 64, 64, 64, device="cuda")
y = torch.randint(0, 10, (64,), device="cuda")
for step in range(150):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
