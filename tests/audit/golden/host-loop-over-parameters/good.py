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
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step % 100 == 0:
            for p in model.parameters():
                print(p.grad.norm().item())
