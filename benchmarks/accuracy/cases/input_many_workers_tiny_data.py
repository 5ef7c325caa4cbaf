# truth: input/too-many-workers | input/worker-transport
# bottleneck: input
# not: input/too-few-workers | input/shallow-prefetch
# Tabular data that sits in memory, and the eight workers somebody read about.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
X = torch.randn(40_000, 20)
Y = X[:, :3].sum(1, keepdim=True)
loader = DataLoader(TensorDataset(X, Y), batch_size=32, shuffle=True, num_workers=8, persistent_workers=True)
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
for epoch in range(3):
    running = 0.0
    for xb, yb in loader:
        pred = model(xb)
        loss = nn.functional.mse_loss(pred, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
    print("epoch", epoch, running / len(loader))
