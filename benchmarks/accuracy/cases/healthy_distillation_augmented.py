# healthy
# bottleneck: device
# not: cadence/evaluation | host/recomputed-targets
"""Distillation with an augmented batch: the frozen teacher is part of the step."""
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def conv_net(width):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, width * 2, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(width * 2, width * 2, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width * 2, 100),
    )


def augment(x):
    if torch.rand(()) < 0.5:
        x = x.flip(3)
    dx, dy = torch.randint(-3, 4, (2,)).tolist()
    return x.roll((dy, dx), (2, 3)) + 0.02 * torch.randn_like(x)


def main():
    torch.manual_seed(0)
    teacher, student = conv_net(48), conv_net(16)
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad = False
    opt = torch.optim.SGD(student.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(TensorDataset(torch.randn(1280, 3, 32, 32), torch.randint(0, 100, (1280,))), 64, shuffle=True)
    t = time.time()
    for epoch in range(6):
        student.train()
        for x, y in loader:
            x = augment(x)
            with torch.no_grad():
                soft = teacher(x)
            logits = student(x)
            kd = F.kl_div(F.log_softmax(logits / 4, 1), F.softmax(soft / 4, 1), reduction="batchmean") * 16
            loss = 0.3 * F.cross_entropy(logits, y) + 0.7 * kd
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, "loss", round(loss.item(), 3))
    print(f"TRAIN {time.time() - t:.2f}")


if __name__ == "__main__":
    main()
