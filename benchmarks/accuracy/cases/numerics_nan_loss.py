# truth: numerics/non-finite-loss
# bottleneck: device
"""One row of zeros in the data, log(0) in the loss: nan from some step on, and nobody looks."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(2000, 128)
x[1234] = 0
y = x.pow(2).sum(1, keepdim=True)
net = nn.Sequential(nn.Linear(128, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02)
loader = DataLoader(TensorDataset(x, y), batch_size=100, shuffle=True)
for epoch in range(12):
    total = 0.0
    for xb, yb in loader:
        out = net(xb)
        loss = (torch.log(out + 0.5) - torch.log(yb)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print("epoch", epoch, total / len(loader))
