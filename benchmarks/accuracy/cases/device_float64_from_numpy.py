# truth: device/float64
# bottleneck: device
# line: double
"""The data are numpy's float64, so the model was made to match them: twice the time, for nothing."""
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(0)
torch.manual_seed(0)
torch.set_num_threads(1)
series = rng.standard_normal((1200, 256))
target = series[:, :8].sum(1, keepdims=True) + 0.1 * rng.standard_normal((1200, 1))

net = nn.Sequential(nn.Linear(256, 700), nn.ReLU(), nn.Linear(700, 700), nn.ReLU(), nn.Linear(700, 1))
net = net.double()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9)
for epoch in range(12):
    for rows in np.array_split(rng.permutation(1200), 9):
        loss = nn.functional.mse_loss(net(torch.from_numpy(series[rows])), torch.from_numpy(target[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
