# truth: host/python-in-step | cadence/checkpoint
# bottleneck: host | checkpoint
# line: copy\.deepcopy
"""Keeps the best weights in memory at every improvement of the training loss."""
import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0
        self.weights = None

    def __call__(self, value, model, optimizer):
        if value < self.best * 1.5:
            self.best = min(self.best, value)
            self.bad = 0
            self.weights = copy.deepcopy(model.state_dict())
            self.optimizer = copy.deepcopy(optimizer.state_dict())
        else:
            self.bad += 1
        return self.bad > self.patience


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(60000, 64, sparse=True)
        self.mlp = nn.Sequential(nn.Linear(64 * 8, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, ids):
        return self.mlp(self.items(ids).flatten(1)).squeeze(1)


torch.manual_seed(0)
ids = torch.randint(0, 60000, (12800, 8))
y = (ids.sum(1) % 7).float()
loader = DataLoader(TensorDataset(ids, y), batch_size=128, shuffle=True)
model = Recommender()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
stopper = EarlyStopping(patience=2000)
for epoch in range(4):
    for x, t in loader:
        loss = nn.functional.mse_loss(model(x), t)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if stopper(loss.item(), model, optimizer):
            break
    print(epoch, stopper.best)
