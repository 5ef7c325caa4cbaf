"""A sample out of and into a cache in memory, against plain copies; microseconds per gathered sample.

    python benchmarks/feed/cache.py [--seconds 1.5] [--only REGEX] [--out FILE]

Every store runs in a process of its own (peers in their environments) and takes turns with plain copies of
the same bytes there, so that a ratio compares what ran within milliseconds. Samples are chosen at random from
96 MB, more than a processor's cache holds, and end in a buffer that is used again. «put» goes into memory
that held a sample before, «put new» into memory that nobody touched yet; either is compared with a plain copy
into shared memory in the same state. What never overwrites has no «put».
"""

from __future__ import annotations

import json
import mmap
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import environments
import harness
import numpy as np
import torch
from harness import Target
from stores import STORES

SIZES = {"3 KB": 3072, "150 KB": 150_528, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
TOTAL_BYTES = 96_000_000
BATCH_BYTES = 16 << 20
#: A single gather of small samples is for a batch of this many.
BATCH = 64
OURS = "hotloop keep"
MAX_READ, MAX_PUT, MAX_SMALL_US = 1.15, 1.8, 1.0


def main() -> int:
    parser = harness.parser(__doc__, num_rounds=1)
    parser.add_argument("--store", help="measure this store in this process")
    args = parser.parse_args()
    if args.store:
        args.out.write_text(json.dumps(measure(args.store, args.seconds)))
        return 0
    rows = [run(name, args.seconds) for name in STORES if re.search(args.only, name)]
    report(rows)
    harness.finish({"cache": rows}, targets(rows), args.out)
    return 0


def run(name: str, seconds: float) -> dict[str, Any]:
    """One store, in its own environment; or why not."""
    harness.say(f"cache: {name}")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        try:
            python = environments.python_of(STORES[name][1])
        except RuntimeError as error:
            return {"store": name, "failure": str(error)}
        command = [python, __file__, "--store", name, "--seconds", str(seconds), "--out", str(out)]
        done = subprocess.run(command, env=harness.environment(), capture_output=True, text=True)
        if done.returncode:
            return {"store": name, "failure": done.stderr.strip()[-300:]}
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Microseconds per sample and ratios to plain copies, for every size."""
    torch.set_num_threads(1)
    return {"store": name, **{size: of_size(name, num, seconds) for size, num in SIZES.items()}}


def of_size(name: str, num_bytes: int, seconds: float) -> dict[str, Any]:
    make = STORES[name][0]
    count = max(8, TOTAL_BYTES // num_bytes)
    batch = max(2, min(BATCH, BATCH_BYTES // num_bytes))
    random = np.random.default_rng(0)
    data = torch.from_numpy(random.integers(0, 255, num_bytes, np.uint8))
    plain = np.zeros((count, num_bytes), np.uint8)
    fresh = np.frombuffer(mmap.mmap(-1, count * num_bytes), np.uint8).reshape(count, num_bytes)
    store = make(count, num_bytes)
    found: dict[str, Any] = {}

    new = in_turn(
        lambda index: store.put(index, data),
        lambda index: np.copyto(fresh[index], data.numpy()),
        range(count),
    )
    found["put new"] = new
    out = torch.empty(batch, num_bytes, dtype=torch.uint8)
    rows = out.numpy()

    def copy(indices: Any) -> None:
        for row, index in enumerate(indices):
            rows[row] = plain[index]

    plain[:] = data.numpy()
    batches = [random.integers(0, count, batch) for _ in range(500)]
    store.read(batches[0], out)
    assert (rows == data.numpy()).all(), "a store gave other bytes"
    found["read"] = in_turn(lambda some: store.read(some, out), copy, batches, seconds=seconds, per=batch)
    if name != OURS:
        places = random.integers(0, count, 500).tolist()
        found["put"] = in_turn(
            lambda index: store.put(index, data),
            lambda index: np.copyto(fresh[index], data.numpy()),
            places,
            seconds=seconds,
        )
    return found


def in_turn(
    ours: Callable[[Any], None],
    theirs: Callable[[Any], None],
    inputs: Any,
    *,
    seconds: float = 0.0,
    per: int = 1,
) -> dict[str, Any]:
    """Both on each input, again until ``seconds`` are over; medians in microseconds and of their ratios."""
    times: list[tuple[float, float]] = []
    begun = time.perf_counter()
    while not times or time.perf_counter() - begun < seconds:
        for one in inputs:
            start = time.perf_counter()
            ours(one)
            between = time.perf_counter()
            theirs(one)
            times.append((between - start, time.perf_counter() - between))
    mine, plain = np.array(times).T
    return {
        "us": float(np.median(mine)) / per * 1e6,
        "copy_us": float(np.median(plain)) / per * 1e6,
        "ratio": harness.spread((mine / plain).tolist()),
    }


def report(rows: list[dict[str, Any]]) -> None:
    for size in SIZES:
        print(f"\n{size} samples: microseconds per sample, ratio to a plain copy beside it [middle half]")
        for row in rows:
            if "failure" in row:
                print(f"  {row['store']:<16} did not run: {' '.join(row['failure'].split())[:100]}")
                continue
            print(
                f"  {row['store']:<16}"
                + "".join(cell(what, row[size]) for what in ("read", "put", "put new"))
            )


def cell(what: str, found: Mapping[str, Any]) -> str:
    if what not in found:
        return f"{what}: -".ljust(46)
    one = found[what]
    spread = one["ratio"]
    text = (
        f"{what}: {one['us']:,.2f} us {spread['median']:.2f}x [{spread['low']:.2f} .. {spread['high']:.2f}]"
    )
    return text.ljust(46)


def targets(rows: list[dict[str, Any]]) -> list[Target]:
    by_name = {row["store"]: row for row in rows if "failure" not in row}
    found = []
    for size in ("1 MiB", "8 MiB"):
        for name, what, most in (
            (OURS, "read", MAX_READ),
            (OURS, "put new", MAX_PUT),
        ):
            ratio = by_name[name][size][what]["ratio"] if name in by_name else None
            found.append(harness.at_most(f"cache {what}, {size}, against a copy ({name})", most, ratio))
    small = by_name[OURS]["3 KB"]["read"]["us"] if OURS in by_name else None
    spread = None if small is None else {"median": small, "low": small, "high": small}
    found.append(harness.at_most("cache gather of 3 KB samples", MAX_SMALL_US, spread, unit=" us"))
    return found


if __name__ == "__main__":
    sys.exit(main())
