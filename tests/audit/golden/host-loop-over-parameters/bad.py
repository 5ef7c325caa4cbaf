import torch
import torch.nn.functional as F


def train(model, loader, optimizer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for p in model.parameters():
            if not torch.isfinite(p.grad).all():
                raise FloatingPointError("gradient")
