# truth: transfer/many-small | transfer/blocking | transfer/pageable
# bottleneck: transfer | host | device
"""A batch of 300 boxes per image, each sent to the device by itself."""
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Linear(4, 16).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-3)
boxes = [[torch.rand(4) for _ in range(300)] for _ in range(20)]
for step in range(250):
    batch = torch.stack([box.to("cuda") for box in boxes[step % 20]])
    loss = net(batch).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
