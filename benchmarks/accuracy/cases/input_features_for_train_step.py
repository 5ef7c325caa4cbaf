# truth: input/slow-sample | input/single-process | input/per-sample-conversion
# bottleneck: input
# line: mean|var|math|window_features|get_batch
"""Windows are standardized in Python for a train_step() that does forward, backward and update in one call."""
import math
import random

import torch
from torch import nn
random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
series = [math.sin(i / 10) + random.gauss(0, 0.1) for i in range(50000)]


def window_features(at):
    w = series[at:at + 128]
    mean = sum(w) / len(w)
    var = sum((v - mean) ** 2 for v in w) / len(w)
    return [(v - mean) / math.sqrt(var + 1e-6) for v in w]


def get_batch(n=32):
    starts = [random.randrange(len(series) - 200) for _ in range(n)]
    x = torch.tensor([window_features(s) for s in starts])
    y = torch.tensor([series[s + 129] for s in starts])
    return x, y


def train_step(net, opt, x, y):
    loss = nn.functional.mse_loss(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


net = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for i in range(1500):
    x, y = get_batch()
    loss = train_step(net, opt, x, y)
    if i % 100 == 0:
        print(i, loss)
