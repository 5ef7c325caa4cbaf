import torch
import torch.nn.functional as F
from gaussian_renderer import network_gui


def train(model, loader, optimizer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if network_gui.conn == None:
            network_gui.try_connect()
        while network_gui.conn != None:
            network_gui.receive()
            break
