import torch


def physics(outputs):
    mismatch = outputs["a"] - 0.5 * outputs["b"]
    total = outputs["a"].mean()
    if (mismatch < 0).any():
        total = total + torch.relu(-mismatch).mean()
    return total


def train(model, loader, optimizer):
    for x in loader:
        loss = physics(model(x.cuda()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
