# healthy
# bottleneck: device
"""A trainer class, a wide MLP, evaluation and a checkpoint at the end only."""
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Trainer:
    def __init__(self, model, train_set, val_set, batch_size=256):
        self.model = model
        self.train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(val_set, batch_size=batch_size)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step(self, batch):
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        losses = [nn.functional.mse_loss(self.model(x), y).item() for x, y in self.val_loader]
        self.model.train()
        return sum(losses) / len(losses)

    def fit(self, epochs):
        for epoch in range(epochs):
            losses = [self.step(batch) for batch in self.train_loader]
            print(f"[{epoch}] train {sum(losses) / len(losses):.4f}")
        print("val", self.validate())
        with tempfile.TemporaryDirectory() as d:
            torch.save(self.model.state_dict(), os.path.join(d, "final.pt"))


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(4096, 256)
    data = TensorDataset(x, x.roll(1, 1).tanh())
    train_set, val_set = random_split(data, [3840, 256])
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 256))
    Trainer(model, train_set, val_set).fit(8)
