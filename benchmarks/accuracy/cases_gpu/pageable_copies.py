# truth: transfer/pageable | transfer/blocking | transfer/oversized-dtype
# bottleneck: transfer
# line: \.to\(|\.cuda\(
"""Large float32 batches from ordinary memory, copied with a blocking .to()."""
import torch
from torch import nn

torch.manual_seed(0)
batches = [torch.rand(64, 3, 512, 512) for _ in range(6)]
labels = torch.randint(0, 10, (64,))
net = nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 64 * 64, 10)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
for step in range(240):
    x = batches[step % 6].to("cuda")
    y = labels.to("cuda")
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
