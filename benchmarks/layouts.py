"""What channels last saves of a training step on a CPU, of five small convolutional networks.

    python benchmarks/layouts.py [--out FILE]

Both layouts train in turns with one thread; the median of eleven, in seconds of the process on a core, which
other programs do not stretch.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from statistics import median

import torch
from torch import nn

TURNS, STEPS = 11, 3


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="the results, as JSON")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = []
    for name, (net, shape) in networks().items():
        first_s, last_s = both(net, shape)
        rows.append({"network": name, "batch": shape, "first_ms": 1e3 * first_s, "last_ms": 1e3 * last_s})
        print(
            f"{name:12} {1e3 * first_s:8.2f} -> {1e3 * last_s:8.2f} ms a step  {first_s / last_s:.2f}x",
            flush=True,
        )
    if args.out:
        document = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "rows": rows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")


def both(net: nn.Module, shape: tuple[int, ...]) -> tuple[float, float]:
    """Core seconds of a step with channels first, and last."""
    models = net, copy.deepcopy(net).to(memory_format=torch.channels_last)
    images, labels = torch.randn(shape), torch.randint(0, 10, shape[:1])
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 1):
        for taken, model, optimizer in zip(times, models, optimizers, strict=True):
            begun = time.process_time()
            for _ in range(STEPS):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
            if turn:
                taken.append((time.process_time() - begun) / STEPS)
    return median(times[0]), median(times[1])


class Residual(nn.Module):
    """Two convolutions beside a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(convolution(channels, channels), convolution(channels, channels))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The sum of both ways."""
        added: torch.Tensor = images + self.inner(images)
        return added


def convolution(before: int, after: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """3 x 3, normalized, rectified."""
    kernel = nn.Conv2d(before, after, 3, stride, 1, bias=False, groups=groups)
    return nn.Sequential(kernel, nn.BatchNorm2d(after), nn.ReLU())


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Each with the shape of its batch."""

    def head(channels: int) -> list[nn.Module]:
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]

    thin = [Residual(16), Residual(16), convolution(16, 32, 2), Residual(32), convolution(32, 64, 2)]
    down = [convolution(3, 32), convolution(32, 64, 2), convolution(64, 128, 2)]
    up = [nn.Upsample(scale_factor=2), convolution(128, 64), nn.Upsample(scale_factor=2), convolution(64, 32)]
    apart = [nn.Sequential(convolution(32, 32, groups=32), nn.Conv2d(32, 32, 1), nn.ReLU()) for _ in range(4)]
    pools = [nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    return {
        "LeNet": (nn.Sequential(*pools, nn.Flatten(), nn.Linear(256, 10)), (64, 1, 28, 28)),
        "ResNet, 16": (nn.Sequential(convolution(3, 16), *thin, Residual(64), *head(64)), (32, 3, 32, 32)),
        "ResNet, 64": (nn.Sequential(convolution(3, 64), Residual(64), *head(64)), (8, 3, 32, 32)),
        "U-Net": (nn.Sequential(*down, *up, *head(32)), (4, 3, 64, 64)),
        "depthwise": (nn.Sequential(convolution(3, 32, 2), *apart, *head(32)), (16, 3, 64, 64)),
    }


if __name__ == "__main__":
    main()
