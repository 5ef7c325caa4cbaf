# truth: cadence/evaluation
# bottleneck: evaluation
# not: input/single-process | input/too-few-workers | input/slow-sample
"""The whole test set is evaluated every 20 steps."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def blobs(n):
    y = torch.randint(0, 10, (n,))
    return TensorDataset(torch.randn(n, 1, 28, 28) + y[:, None, None, None] * 0.1, y)


train_loader = DataLoader(blobs(4000), batch_size=32, shuffle=True)
test_loader = DataLoader(blobs(6000), batch_size=100)
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 13 * 13, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()


def test():
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    model.train()
    return correct / len(test_loader.dataset)


step = 0
for epoch in range(2):
    for x, y in train_loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f} accuracy {test():.3f}")
