import torch
import torch.nn.functional as F
import cv2


def train(model, loader, optimizer, frame):
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        cv2.imshow("input", frame)
        cv2.waitKey(1)
