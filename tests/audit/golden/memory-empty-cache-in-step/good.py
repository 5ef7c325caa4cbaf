import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader


def train(model, loader, optimizer, device):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            torch.cuda.empty_cache()
