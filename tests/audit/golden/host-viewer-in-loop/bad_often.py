import torch
import torch.nn.functional as F
import nerfview


viewer = nerfview.Viewer(server=None, render_fn=None, mode="training")


def train(model, loader, optimizer):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            viewer.update(step, x.shape[0])
