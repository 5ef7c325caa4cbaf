# truth: cadence/logging | host/python-in-step
# bottleneck: logging | host
# line: fsync|flush|dumps|counts|histogram|logger\.write
# not: input/single-process | input/slow-sample
"""Histograms of every gradient, written and synced to disk at every step by a class of one's own."""
import json
import os
import tempfile
import time

import torch
from torch import nn


class JsonLogger:
    def __init__(self, path):
        self.file = open(path, "w")

    def write(self, **record):
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


def histogram(tensor):
    counts = torch.histc(tensor.float(), bins=1000).tolist()
    return {"bins": counts, "mean": tensor.mean().item(), "std": tensor.std().item()}


torch.set_num_threads(1)
logger = JsonLogger(os.path.join(tempfile.mkdtemp(), "train.jsonl"))
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8))
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
began = time.time()
for step in range(400):
    x = torch.randn(128, 128)
    loss = nn.functional.mse_loss(model(x), x[:, :8])
    opt.zero_grad()
    loss.backward()
    opt.step()
    logger.write(step=step, loss=loss.item(), **{name: histogram(p.grad) for name, p in model.named_parameters()})
print(f"TRAIN {time.time() - began:.2f}")
