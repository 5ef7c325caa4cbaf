import torch
import torch.nn.functional as F


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:
        total += (model(x.cuda()).argmax(1) == y.cuda()).sum()
    return total


def train(model, loader, optimizer, validation):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            evaluate(model, validation)
