# truth: input/slow-sample
# bottleneck: input
# line: q\.get
# not: input/too-few-workers
"""A thread renders batches in Python and fills a queue; the loop waits for it."""
import queue
import random
import threading
import time

import torch
from torch import nn

STEPS = 600


def render_sample(rng, size=32):
    cx, cy, r = rng.uniform(8, 24), rng.uniform(8, 24), rng.uniform(3, 8)
    return [[1.0 if (x - cx) ** 2 + (y - cy) ** 2 < r * r else 0.0 for x in range(size)] for y in range(size)], r


class Producer(threading.Thread):
    def __init__(self, batch_size, out, steps):
        super().__init__()
        self.batch_size, self.out, self.rng, self.steps = batch_size, out, random.Random(0), steps

    def run(self):
        for _ in range(self.steps):
            pairs = [render_sample(self.rng) for _ in range(self.batch_size)]
            images = torch.tensor([p[0] for p in pairs]).unsqueeze(1)
            self.out.put((images, torch.tensor([p[1] for p in pairs])))


def main():
    q = queue.Queue(maxsize=8)
    Producer(64, q, STEPS).start()
    model = nn.Sequential(nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 225, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(STEPS):
        images, radius = q.get()
        loss = (model(images).squeeze(1) - radius).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 100 == 0:
            print(step, loss.item())
    print(f"TRAIN {time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
