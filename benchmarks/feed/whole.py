"""A batch out of a cache that has all samples, beside a step: gathered, and taken by index.

    python benchmarks/feed/whole.py [--rounds 400]

32 rows of 576 bytes with a label beside a step of 0.2 ms, and 8 of 755 kB beside one of a millisecond, whose
copy into new memory is made through the processor's caches and past them. Medians, in turns, one thread.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

import numpy as np
import torch
from torch.utils.data import TensorDataset

from hotloop import fast
from hotloop.feed import cached


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=400)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    small(rounds)
    large(rounds)
    return 0


def small(rounds: int) -> None:
    data = TensorDataset(torch.randn(2000, 144), torch.randint(0, 5, (2000,)))
    kept = cached(data, shared=False)
    for _ in range(2):
        for first in range(0, 2000, 50):
            kept.gather(list(range(first, first + 50)))
    model = torch.nn.Sequential(torch.nn.Linear(144, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
    report(
        "32 rows of 576 bytes",
        {
            "cached": lambda at: kept.gather(at.tolist()),
            "index_select": lambda at: [one.index_select(0, torch.from_numpy(at)) for one in data.tensors],
        },
        lambda batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1]).backward(),
        (2000, 32),
        rounds,
    )


def large(rounds: int) -> None:
    source = torch.randn(96, 368, 513)
    memory, size = source.numpy().view(np.uint8).reshape(-1), 368 * 513 * 4
    model = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool1d(16), torch.nn.Flatten(), torch.nn.Linear(368 * 16, 4)
    )

    def copied(at: Any, *, past: bool) -> Any:
        batch = torch.empty((len(at), 368, 513))
        if fast.gather is None:
            raise SystemExit("hotloop is not compiled here")
        fast.gather(batch.data_ptr(), size, memory, at * size, past)
        return batch

    report(
        "8 rows of 755 kB",
        {
            "past the caches": lambda at: copied(at, past=True),
            "through them": lambda at: copied(at, past=False),
            "index_select": lambda at: source.index_select(0, torch.from_numpy(at)),
        },
        lambda batch: model(batch).sum().backward(),
        (96, 8),
        rounds,
    )


def report(
    what: str,
    ways: dict[str, Callable[[Any], Any]],
    step: Callable[[Any], Any],
    sizes: tuple[int, int],
    rounds: int,
) -> None:
    """Print what a batch takes, and the batch with its step, in each way."""
    draw, (most, num) = np.random.default_rng(0), sizes
    spent: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, take in ways.items():
            at = draw.integers(0, most, num)
            begin = time.perf_counter()
            batch = take(at)
            made = time.perf_counter()
            step(batch)
            spent[way].append((made - begin, time.perf_counter() - begin))
            del batch
    print(what)
    for way, pairs in spent.items():
        alone, whole = (1e6 * statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"  {way:16} {alone:7.1f} us, with its step {whole:7.1f}")


if __name__ == "__main__":
    sys.exit(main())
