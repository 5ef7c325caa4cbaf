import torch
import torch.nn.functional as F
from visdom import Visdom


window = Visdom(port=8097)


def train(model, loader, optimizer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        window.line([step], [loss], update="append")
