# truth: cadence/logging
# bottleneck: logging
# line: add_histogram|writer
# not: input/single-process | host/python-in-step
"""TensorBoard: histograms of all weights and gradients in each step."""
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter


def train(log_dir):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    opt = torch.optim.Adam(net.parameters())
    x = torch.randn(1600, 64)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    writer = SummaryWriter(log_dir)
    step = 0
    for epoch in range(2):
        for xb, yb in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
            loss = nn.functional.cross_entropy(net(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            writer.add_scalar("loss", loss, step)
            for name, p in net.named_parameters():
                writer.add_histogram(f"weights/{name}", p, step)
                writer.add_histogram(f"grads/{name}", p.grad, step)
            step += 1
    writer.close()
    print(loss.item())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        train(d)
