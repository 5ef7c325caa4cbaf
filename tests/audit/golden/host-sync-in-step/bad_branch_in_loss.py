import torch


def physics(outputs):
    below = torch.relu(-outputs)
    total = torch.zeros((), device=outputs.device)
    if below.max() > 0:
        total = total + below.mean()
    return total


def train(model, loader, optimizer):
    for x in loader:
        loss = physics(model(x.cuda()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
