"""Does a Loader grow? Thousands of short epochs, or a day's worth of steps: descriptors, threads, memory.

    python benchmarks/feed/endurance.py [--only REGEX] [--share 1.0] [--out FILE]

Every way is a process of its own, which prints a line every tenth of the way; growth is what came after the
first tenth. All of it takes about ten minutes of two quiet cores, a million steps (--only steps) two of them.
Exits with 1 where something grew.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from harness import Target, finish
from torch.utils.data import Dataset

from hotloop.feed import Loader, cached

#: Pages that came and stayed: the allocator's slack, not a leak of a batch (of 64 KB) an epoch.
SLACK_BYTES = 16 << 20
#: What is counted may differ by so many at the moment of counting.
SLACK = 2
#: Shown only: other processes of the machine have files there as well.
NOT_OURS = "shm_files"


class Samples(Dataset[Any]):
    def __init__(self, side: int = 64) -> None:
        self.side = side

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((self.side, self.side), float(index)), "number": index}


class Repeated:
    """A sampler of one long epoch."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __iter__(self) -> Iterator[int]:
        return (index % 8 for index in range(self.number))


def epochs(number: int, *, persistent: bool, cache: bool = False) -> Iterator[None]:
    """After every epoch of two batches."""
    dataset = cached(Samples(), max_bytes="16MiB", shared=False) if cache else Samples()
    loader = Loader(dataset, batch_size=4, num_workers=2, persistent_workers=persistent)
    for _ in range(number):
        assert sum(len(batch["number"]) for batch in loader) == 8
        yield


def steps(number: int) -> Iterator[None]:
    """After every step of one long epoch; of two samples of 16 bytes: what stays of each shows."""
    for batch in Loader(Samples(2), batch_size=2, num_workers=2, sampler=Repeated(2 * number)):
        assert len(batch["number"]) == 2
        del batch
        yield


#: What is done, how often, and how.
WAYS: dict[str, tuple[int, Any]] = {
    "epochs, workers kept": (10_000, lambda number: epochs(number, persistent=True)),
    "epochs, workers anew": (10_000, lambda number: epochs(number, persistent=False)),
    "epochs, cached, kept": (10_000, lambda number: epochs(number, persistent=True, cache=True)),
    "epochs, cached, anew": (10_000, lambda number: epochs(number, persistent=False, cache=True)),
    "steps": (1_000_000, steps),
}


def measured() -> dict[str, int]:
    """What this process and its workers hold now, and what lies in ``/dev/shm``."""
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children")  # of the main thread, which starts them
    workers = [int(pid) for pid in children.read_text().split()]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "threads": threading.active_count(),
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "processes": len(workers),
        "shm_files": len(os.listdir("/dev/shm")),  # noqa: PTH208
        "resident_bytes": resident_bytes(os.getpid()),
        "workers_resident_bytes": sum(map(resident_bytes, workers)),
    }


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def go(name: str, share: float, out: Path) -> None:
    """One way in this process, its figures at every tenth."""
    number, make = WAYS[name]
    number = max(10, round(number * share))
    seen, begun = [], time.perf_counter()
    for done, _ in enumerate(make(number), 1):
        if done % (number // 10) == 0:
            seen.append({"done": done, "seconds": time.perf_counter() - begun, **measured()})
            print(f"{name}: {seen[-1]}", file=sys.stderr, flush=True)
    out.write_text(json.dumps(seen))


def run(name: str, share: float, folder: Path) -> list[dict[str, Any]]:
    """One way in a process of its own; nothing where it failed."""
    out = folder / "out.json"
    command = [sys.executable, __file__, "--way", name, "--share", str(share), "--out", str(out)]
    subprocess.run(command, check=False)
    found: list[dict[str, Any]] = json.loads(out.read_text()) if out.exists() else []
    out.unlink(missing_ok=True)
    return found


def target(name: str, seen: list[dict[str, Any]]) -> Target:
    """Whether anything grew after the first tenth."""
    if not seen:
        return Target(name=name, required="nothing grows", measured="did not run", met=None)
    grown = {key: seen[-1][key] - seen[0][key] for key in seen[0] if key not in ("done", "seconds")}
    met = all(
        amount <= (SLACK_BYTES if "bytes" in key else SLACK)
        for key, amount in grown.items()
        if key != NOT_OURS
    )
    words = ", ".join(
        f"{key} {amount / 1e6:+.2f} MB" if "bytes" in key else f"{key} {amount:+d}"
        for key, amount in grown.items()
        if amount
    )
    measured = f"{seen[-1]['done']} in {seen[-1]['seconds']:.0f} s: {words or 'nothing'}"
    return Target(name=name, required="nothing grows", measured=measured, met=met)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only ways whose name matches this expression")
    parser.add_argument("--share", type=float, default=1.0, help="this part of the full number only")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        go(args.way, args.share, args.out)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        chosen = [name for name in WAYS if re.search(args.only, name)]
        seen = {name: run(name, args.share, Path(folder)) for name in chosen}
    targets = [target(name, rows) for name, rows in seen.items()]
    finish({"endurance": seen}, targets, args.out)
    return 0 if all(one.met for one in targets) else 1


if __name__ == "__main__":
    sys.exit(main())
