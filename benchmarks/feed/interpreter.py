"""A training step that holds the interpreter, with cached batches from workers or from a thread beside it.

    python benchmarks/feed/interpreter.py [--seconds 1.5] [--out FILE]

2,048 images of 224 x 224 x 3 bytes, baked, in batches of 64 for 2 workers; between two batches nothing, some
milliseconds of pure Python, or a small step of torch. The two ways take turns, twice.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

sys.path.insert(0, str(Path(__file__).parents[2] / "src"))

from hotloop import feed

NUM, BATCH = 2048, 64
METHODS = ("process", "beside")


class Images(Dataset[Tensor]):
    def __len__(self) -> int:
        return NUM

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((224, 224, 3), index % 256, dtype=torch.uint8)


def python(ms: float) -> Callable[[], None]:
    def step() -> None:
        end = time.perf_counter() + ms / 1e3
        while time.perf_counter() < end:
            pass

    return step


def small_torch() -> Callable[[], None]:
    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(8)])

    def step() -> None:
        inputs = torch.randn(8, 64)
        for _ in range(6):
            net(inputs).sum().backward()
            net.zero_grad()

    return step


def timed(images: Dataset[Tensor], method: str, step: Callable[[], None], seconds: float) -> dict[str, float]:
    """Milliseconds per step in all, waited and at work."""
    loader = feed.Loader(
        images, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True, worker_method=method
    )
    for _ in loader:  # what starts once
        pass
    steps, waited, worked = 0, 0.0, 0.0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        batches = iter(loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            got = time.perf_counter()
            if batch is None:
                break
            step()
            steps, waited, worked = steps + 1, waited + got - asked, worked + time.perf_counter() - got
    whole = time.perf_counter() - start
    return {name: 1e3 * s / steps for name, s in (("all", whole), ("wait", waited), ("step", worked))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kinds = {"nothing": lambda: None, **{f"{ms} ms of Python": python(ms) for ms in (1, 5, 20)}}
    kinds["a small step of torch"] = small_torch()
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        feed.bake(Images(), Path(folder) / "images", progress=False)
        images = feed.Baked(Path(folder) / "images")
        print(f"{'between batches':<24}{'method':<10}{'ms/step':>9}{'wait':>8}{'step':>8}")
        for kind, step in kinds.items():
            rows = found[kind] = {method: [] for method in METHODS}
            for method in METHODS * 2:
                row = timed(images, method, step, options.seconds)
                rows[method].append(row)
                print(
                    f"{kind:<24}{method:<10}{row['all']:>9.2f}{row['wait']:>8.2f}{row['step']:>8.2f}",
                    flush=True,
                )
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
