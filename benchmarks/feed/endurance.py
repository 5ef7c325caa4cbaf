"""Does a Loader grow? Thousands of short epochs, or a day's worth of steps: descriptors, threads, memory.

    python benchmarks/feed/endurance.py epochs 10000 [--persistent]
    python benchmarks/feed/endurance.py steps 1000000

Prints a line every tenth of the way and exits with 1 where anything grew after the first tenth.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from hotloop.feed import Loader

#: Pages that came and stayed: the allocator's slack, not a leak of a batch (of 64 KB) an epoch.
SLACK_BYTES = 16 << 20


class Samples(Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((64, 64), float(index)), "name": f"sample {index}"}


def measured() -> dict[str, int]:
    """What this process holds now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "resident_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
    }


def epochs(number: int, persistent: bool) -> Any:
    """Yields after every epoch of two batches."""
    loader = Loader(Samples(), batch_size=4, num_workers=2, persistent_workers=persistent)
    for _ in range(number):
        assert sum(len(batch["name"]) for batch in loader) == 8
        yield


def steps(number: int) -> Any:
    """Yields after every step of one long epoch."""
    for batch in Loader(Samples(), batch_size=4, num_workers=2, sampler=Repeated(4 * number)):
        assert len(batch["name"]) == 4
        del batch
        yield


class Repeated:
    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Any:
        return (index % 8 for index in range(self.number))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["epochs", "steps"])
    parser.add_argument("number", type=int)
    parser.add_argument("--persistent", action="store_true")
    arguments = parser.parse_args()
    every = max(1, arguments.number // 10)
    rounds = (
        steps(arguments.number)
        if arguments.what == "steps"
        else epochs(arguments.number, arguments.persistent)
    )
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for done, _ in enumerate(rounds, 1):
        if done % every == 0:
            last = measured()
            first = first or last
            print(done, arguments.what, last, flush=True)
    grown = {name: last[name] - first[name] for name in last}
    print("grown:", grown)
    resident = grown.pop("resident_bytes")
    return int(resident > SLACK_BYTES or any(amount > 2 for amount in grown.values()))


if __name__ == "__main__":
    sys.exit(main())
