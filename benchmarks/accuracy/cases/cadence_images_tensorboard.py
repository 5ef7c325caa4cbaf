# truth: cadence/images | cadence/logging
# bottleneck: logging
# line: add_images?|make_grid|writer
"""Super-resolution: input, output and target pictures go to TensorBoard in each step."""
import tempfile

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter


class Batches:
    """Not a DataLoader: pictures made on the spot."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        for _ in range(self.n):
            sharp = torch.rand(8, 3, 128, 128)
            yield nn.functional.avg_pool2d(sharp, 4), sharp


def main():
    torch.manual_seed(0)
    up = nn.Sequential(nn.Conv2d(3, 48, 3, padding=1), nn.PixelShuffle(4))
    opt = torch.optim.Adam(up.parameters(), 1e-3)
    with tempfile.TemporaryDirectory() as d, SummaryWriter(d) as writer:
        for step, (small, sharp) in enumerate(Batches(30)):
            out = up(small)
            loss = nn.functional.l1_loss(out, sharp)
            opt.zero_grad()
            loss.backward()
            opt.step()
            writer.add_images("input", small, step)
            writer.add_images("output", out.clamp(0, 1), step)
            writer.add_images("target", sharp, step)
    print(loss.item())


main()
