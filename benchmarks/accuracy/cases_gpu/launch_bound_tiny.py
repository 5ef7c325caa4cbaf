# truth: host/launch-bound | device/compile-off | device/low-intensity | device/batch-too-small
# bottleneck: host | device
"""A deep and narrow net with a batch of eight: hundreds of kernels that take microseconds."""
import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.a, self.b = nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x):
        return x + torch.tanh(self.b(torch.relu(self.a(self.norm(x)))))


model = nn.Sequential(*[Block() for _ in range(60)]).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
data = torch.randn(64, 8, 32, device="cuda")
for step in range(600):
    x = data[step % 64]
    loss = (model(x) - x.roll(1, 1)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 100 == 0:
        print(step, loss.item())
