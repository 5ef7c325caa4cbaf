# truth: cadence/evaluation
# bottleneck: evaluation
# line: evaluator|iou|best|for x, y in val
# not: input/single-process | host/python-in-step
"""Detection-like training: the validation metric is computed in Python after every epoch."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def iou(a, b):
    x1, y1, x2, y2 = max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3])
    inter = max(0.0, x2 - x1) * max(0.0, y2 - y1)
    area = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter
    return inter / area if area > 0 else 0.0


class Evaluator:
    def __init__(self):
        self.pairs = []

    def update(self, guess, truth):
        self.pairs += list(zip(guess.tolist(), truth.tolist()))

    def compute(self):
        scores = []
        for threshold in [0.5 + 0.05 * k for k in range(10)]:
            hits = 0
            for guess, _ in self.pairs[:350]:
                best = max(iou(guess, truth) for _, truth in self.pairs[:200])
                hits += best > threshold
            scores.append(hits / len(self.pairs))
        return sum(scores) / len(scores)


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 144, 4), nn.Sigmoid())
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    train = DataLoader(TensorDataset(torch.randn(320, 3, 48, 48), torch.rand(320, 4)), batch_size=32, shuffle=True)
    val = DataLoader(TensorDataset(torch.randn(400, 3, 48, 48), torch.rand(400, 4)), batch_size=50)
    t = time.time()
    for epoch in range(8):
        net.train()
        for x, y in train:
            loss = nn.functional.smooth_l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        net.eval()
        evaluator = Evaluator()
        with torch.no_grad():
            for x, y in val:
                evaluator.update(net(x), y)
        print(epoch, loss.item(), "mAP", evaluator.compute())
    print(f"TRAIN {time.time() - t:.2f}")


if __name__ == "__main__":
    main()
