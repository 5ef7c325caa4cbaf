import torch


def together(outputs):
    return torch.stack([outputs["a"], outputs["b"]])


def physics(outputs):
    if together(outputs).std(dim=0).mean() < 0.01:
        return torch.zeros(())
    return outputs["a"].mean()


def train(model, loader, optimizer):
    for x in loader:
        loss = physics(model(x.cuda()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
