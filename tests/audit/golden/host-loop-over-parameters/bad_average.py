import torch
import torch.nn.functional as F


def train(model, loader, optimizer, ema):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for average, p in zip(ema.parameters(), model.parameters()):
                average.mul_(0.999).add_(p, alpha=0.001)
