import torch
import torch.nn.functional as F


def grad_norm(model):
    total = 0.0
    for name, p in model.named_parameters():
        norm = p.grad.detach().norm(2)
        total += norm.item() ** 2
    return total**0.5


def train(model, loader, optimizer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = grad_norm(model)
