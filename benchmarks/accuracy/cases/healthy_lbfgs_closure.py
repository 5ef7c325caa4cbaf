# healthy
# bottleneck: device
"""L-BFGS: forward and backward happen inside optimizer.step()."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
t = torch.linspace(0, 6, 3000)[:, None]
u = torch.sin(t) * torch.exp(-0.2 * t)
net = nn.Sequential(nn.Linear(1, 220), nn.Tanh(), nn.Linear(220, 220), nn.Tanh(), nn.Linear(220, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=6, history_size=10)


def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(t), u)
    loss.backward()
    return loss


for it in range(60):
    loss = optimizer.step(closure)
    if it % 15 == 0:
        print(it, loss.item())
