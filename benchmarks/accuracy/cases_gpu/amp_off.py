# truth: device/amp-off | device/tf32-off
# bottleneck: device
"""A transformer in float32 with every tensor-core path left off."""
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(1024, 16, 4096, 0.0, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(16, 512, 1024, device="cuda")
for step in range(80):
    loss = model(x).float().pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
