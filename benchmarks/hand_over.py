"""From what cost on a batch gathered in memory is worth making in a thread beside the step.

    python benchmarks/hand_over.py [--rounds 15] [--out FILE]

A loop gathers its own batches (``data[indices]``) and trains on them with one thread of torch; the other way
a thread gathers them and hands them over in a ``queue.Queue``. Blocks of both take turns. Less is saved
than the gather took: a queue, a second thread and one interpreter lock have their price. ``hand_over_s`` of
``diagnose/limits.py`` is the gather from which on something is saved.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

FEATURES, STEPS = 64, 60
#: Samples a batch: gathers of about 10 us to 1 ms on a quiet machine.
SIZES = (16, 512, 1024, 1536, 2048, 4096)


def training(hidden: int) -> Callable[[Tensor], None]:
    """A step whose duration does not depend on the batch: it reads 64 of its samples."""
    net = nn.Sequential(nn.Linear(FEATURES, hidden), nn.ReLU(), nn.Linear(hidden, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)

    def step(batch: Tensor) -> None:
        loss = net(batch[:64]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def inline(data: Tensor, size: int, steps: int) -> Iterator[Tensor]:
    for _ in range(steps):
        yield data[torch.randint(len(data), (size,))]


def beside(data: Tensor, size: int, steps: int) -> Iterator[Tensor]:
    ready: queue.Queue[Tensor] = queue.Queue(maxsize=2)

    def make() -> None:
        for batch in inline(data, size, steps):
            ready.put(batch)

    maker = threading.Thread(target=make)
    maker.start()
    for _ in range(steps):
        yield ready.get()
    maker.join()


def block(batches: Iterator[Tensor], step: Callable[[Tensor], None]) -> float:
    """Seconds a step, without the first ones."""
    start = 0.0
    for turn, batch in enumerate(batches):
        step(batch)
        if turn == 9:
            start = time.perf_counter()
    return (time.perf_counter() - start) / (STEPS - 10)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = torch.randn(200_000, FEATURES)
    found = []
    print(f"{'step, us':>9}{'gather, us':>12}{'inline':>9}{'beside':>9}{'saved, us':>11}")
    for hidden in (256, 4096):
        step = training(hidden)
        for size in SIZES:
            gather = min(block(inline(data, size, STEPS), lambda _: None) for _ in range(3))
            ways: list[list[float]] = [[], []]
            for _ in range(args.rounds):
                for way, spent in zip((inline, beside), ways, strict=True):
                    spent.append(block(way(data, size, STEPS), step))
            here, there = (1e6 * statistics.median(spent) for spent in ways)
            saved = 1e6 * statistics.median(one - other for one, other in zip(*ways, strict=True))
            found.append(
                {"gather_us": 1e6 * gather, "inline_us": here, "beside_us": there, "saved_us": saved}
            )
            print(
                f"{here - 1e6 * gather:>9.0f}{1e6 * gather:>12.0f}{here:>9.0f}{there:>9.0f}{saved:>+11.0f}",
                flush=True,
            )
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
