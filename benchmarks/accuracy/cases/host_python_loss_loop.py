# truth: host/python-in-step
# bottleneck: host | device
# line: for |cost|abs|prev|delta|min\(|total|table
# not: input/single-process | input/slow-sample
"""Edit-distance style alignment loss written with Python loops over the batch."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(1280, 16, 12)
y = torch.randint(0, 9, (1280, 16))


def alignment_weight(pred, target):
    """Warping distance of two label sequences."""
    prev = [0.0] + [float("inf")] * len(target)
    for p in pred:
        row = [float("inf")]
        for j, t in enumerate(target):
            cost = 0.0 if p == t else 1.0
            row.append(cost + min(prev[j], prev[j + 1], row[j]))
        prev = row
    return prev[-1]


def criterion(logits, target):
    ce = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target).mean(1)
    pred = logits.argmax(-1).tolist()
    weights = [1.0 + alignment_weight(p, t) for p, t in zip(pred, target.tolist())]
    return (ce * torch.tensor(weights)).mean()


net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 9))
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(16):
    for xb, yb in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
        loss = criterion(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("epoch", epoch, loss.item())
