import torch
import torch.nn.functional as F
from matplotlib import pyplot as plt


def train(model, loader, optimizer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plt.imshow(x[0, 0].cpu())
        plt.pause(0.001)
