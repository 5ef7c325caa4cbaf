"""Samples indexed one by one, and by ``__getitems__`` once for the batch: what that gives.

    python benchmarks/feed/batched_get.py [--rounds 15] [--workers 0 2]

Rows of three sizes in tensors, and in float64 arrays that are cast. ``list``: ``__getitems__`` indexes once
and returns the samples as a list, which torch's default collate stacks again: what a fix could write without
knowing who makes the batches. ``batch``: it returns the batch, with a ``collate_fn`` that leaves it alone.
Microseconds of the loop per batch of 64, medians over epochs, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

BATCH = 64


class Tensors(Dataset[Any]):  # type: ignore[misc,unused-ignore]
    def __init__(self, num_values: int, num: int) -> None:
        self.x, self.y = torch.randn(num, num_values), torch.randint(0, 5, (num,))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], self.y[i]

    def batch(self, indices: list[int]) -> Any:
        return self.x[indices], self.y[indices]


class Arrays(Tensors):
    def __init__(self, num_values: int, num: int) -> None:
        self.x, self.y = np.random.randn(num, num_values), np.random.randint(0, 5, num)

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(self.x[i]).float(), self.y[i]

    def batch(self, indices: list[int]) -> Any:
        return torch.from_numpy(self.x[indices]).float(), torch.from_numpy(self.y[indices])


class Listed(Dataset[Any]):  # type: ignore[misc,unused-ignore]
    """``__getitems__`` that gives the samples of a batch indexed at once."""

    def __init__(self, inner: Tensors) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, i: int) -> Any:
        return self.inner[i]

    def __getitems__(self, indices: list[int]) -> Any:
        return list(zip(*self.inner.batch(indices), strict=True))


class Whole(Listed):
    def __getitems__(self, indices: list[int]) -> Any:
        return self.inner.batch(indices)


def as_it_is(batch: Any) -> Any:
    return batch


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for workers in options.workers:
        for kind in (Tensors, Arrays):
            for num_values, num in ((16, 12800), (600, 6400), (50_000, 640)):
                made = kind(num_values, num)
                report(f"{kind.__name__.lower()}, {num_values:,} values", made, workers, options.rounds)
    return 0


def report(name: str, made: Tensors, workers: int, rounds: int) -> None:
    ways: dict[str, Callable[[], Iterator[Any]]] = {
        way: DataLoader(
            data, batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=bool(workers),
            collate_fn=as_it_is if way == "batch" else None,
        ).__iter__
        for way, data in (("one by one", made), ("list", Listed(made)), ("batch", Whole(made)))
    }  # fmt: skip
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):
        for way, begin in ways.items():
            batches = begin()
            next(batches)
            started = time.perf_counter()
            count = sum(1 for _ in batches)
            if turn:  # the first epoch starts the workers
                seconds[way].append((time.perf_counter() - started) / count)
    median = {way: statistics.median(times) for way, times in seconds.items()}
    first = median["one by one"]
    shown = ", ".join(f"{way} {each * 1e6:,.0f} us ({first / each:.2f}x)" for way, each in median.items())
    print(f"{workers} workers, {name}: {shown}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
