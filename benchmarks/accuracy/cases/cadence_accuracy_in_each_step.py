# truth: cadence/evaluation
# bottleneck: evaluation
# line: net\(vx\)|no_grad
"""After every update the whole validation set is scored, in the loop itself and without eval()."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
x, y = torch.randn(6400, 64), torch.randint(0, 10, (6400,))
vx, vy = torch.randn(2000, 64), torch.randint(0, 10, (2000,))
net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
opt = torch.optim.SGD(net.parameters(), 0.1)
best = 0.0
for epoch in range(3):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
        loss = nn.functional.cross_entropy(net(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            acc = (net(vx).argmax(1) == vy).float().mean().item()
            best = max(best, acc)
