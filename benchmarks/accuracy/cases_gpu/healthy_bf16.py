# healthy
# bottleneck: device
"""A transformer as it should be: bf16, fused optimiser, resident data, a loss read every 20 steps."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
layer = nn.TransformerEncoderLayer(2048, 16, 8192, 0.0, batch_first=True, norm_first=True)
model = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
x = torch.randn(16, 1024, 2048, device="cuda")
for step in range(80):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).float().pow(2).mean()
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())
