# truth: input/iterator-per-step
# bottleneck: input
# line: next\(iter\(loader\)\)
# not: input/single-process | input/too-few-workers | host/python-in-step
"""Click-through model; takes its batch by next(iter(loader))."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
n = 400_000
features = torch.randint(0, 5000, (n, 6))
clicks = (features.sum(1) % 3 == 0).float()
loader = DataLoader(TensorDataset(features, clicks), batch_size=64, shuffle=True)


class CTR(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(5000, 16)
        self.m = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, f):
        return self.m(self.e(f).flatten(1)).squeeze(1)


model = CTR()
opt = torch.optim.Adagrad(model.parameters(), 0.01)
for it in range(500):
    f, c = next(iter(loader))
    loss = nn.functional.binary_cross_entropy_with_logits(model(f), c)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 100 == 0:
        print("iteration", it, "loss", loss.item())
