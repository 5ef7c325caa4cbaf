import torch
import torch.nn.functional as F


EVERY = 2


def train(model, loader, optimizer, writer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            writer.add_histogram("x", x, step)
