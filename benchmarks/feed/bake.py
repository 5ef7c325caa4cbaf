"""Writing a bake and reading it: whole batches and single samples, against plain copies of the same bytes.

    python benchmarks/feed/bake.py [--rounds 7] [--seconds 1.5] [--only REGEX] [--out FILE]

Reading: 64 MB or 1000 samples in random order, warm, into one buffer that is used again: ``Baked.gather``,
``np.take`` on an ``np.memmap`` of the same file, the same rows copied one by one from ordinary memory, and
samples that are stacked. All in one process and thread, taking turns. Writing: ``bake`` of ready arrays with
one worker process, against the same bytes written to a file and synced. Cold: the file out of memory, a batch
in random order.
"""

from __future__ import annotations

import functools
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from harness import Target

from hotloop.feed import Baked, bake

#: Bytes a sample, and the most that baked copies may cost over plain ones.
SIZES = {"3 KB": 3072, "147 KB": 3 * 224 * 224, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
DATASET_BYTES, BATCH_BYTES, BATCH = 512 << 20, 64 << 20, 64
REQUIRED_OVER_COPY, REQUIRED_US = 1.15, 1.0


class Ready:
    """Samples that cost nothing to make."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes
        self.count = min(DATASET_BYTES // num_bytes, 20_000)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((self.num_bytes,), index % 251, dtype=torch.uint8)


def main() -> int:
    args = harness.parser(__doc__, num_rounds=7).parse_args()
    torch.set_num_threads(1)
    result: dict[str, Any] = {}
    for name, num_bytes in SIZES.items():
        if re.search(args.only, name, re.IGNORECASE):
            harness.say(f"bakes of {name} samples")
            with tempfile.TemporaryDirectory(
                dir=harness.DATA.parent if harness.DATA.parent.is_dir() else None
            ) as at:
                result[name] = measure(Path(at), num_bytes, args.rounds, args.seconds)
            report(name, result[name])
    harness.finish({"bake": result}, targets(result), args.out)
    return 0


def measure(folder: Path, num_bytes: int, num_rounds: int, seconds: float) -> dict[str, Any]:
    """Seconds per sample of every way of reading, bytes per second of writing, and the cold batch."""
    dataset = Ready(num_bytes)
    start = time.perf_counter()
    bake(dataset, folder / "baked", num_workers=1, progress=False)
    written_s = time.perf_counter() - start
    plain_s = write_plainly(folder / "plain", dataset)
    total = num_bytes * len(dataset)
    reading = read_in_turn(folder / "baked", dataset, num_rounds, seconds)
    ratios = [ours / plain for ours, plain in zip(reading["Baked.gather"], reading["copies"], strict=True)]
    return {
        "num_samples": len(dataset),
        "written_bytes_s": total / written_s,
        "plainly_written_bytes_s": total / plain_s,
        "sample_us": {way: harness.spread([s * 1e6 for s in found]) for way, found in reading.items()},
        "over_copies": harness.spread(ratios),
        "cold_batch_ms": cold(folder / "baked", dataset, num_rounds),
    }


def write_plainly(path: Path, dataset: Ready) -> float:
    """Seconds to write the same samples one after the other and sync."""
    start = time.perf_counter()
    with path.open("wb") as stream:
        for index in range(len(dataset)):
            stream.write(dataset[index].numpy())
        stream.flush()
        os.fsync(stream.fileno())
    return time.perf_counter() - start


def read_in_turn(folder: Path, dataset: Ready, num_rounds: int, seconds: float) -> dict[str, list[float]]:
    """Seconds per sample, round by round."""
    baked = Baked(folder, verify="full")
    file = folder / baked.manifest.tables()[0].file
    mapped = np.memmap(file, np.uint8, "r", shape=(len(dataset), dataset.num_bytes))
    memory = np.array(mapped)
    size = min(BATCH, max(4, BATCH_BYTES // dataset.num_bytes))
    buffer = torch.empty((size, dataset.num_bytes), dtype=torch.uint8)
    array = buffer.numpy()

    def copies(indices: list[int]) -> None:
        for k, index in enumerate(indices):
            array[k] = memory[index]

    ways: dict[str, Callable[[list[int]], Any]] = {
        "Baked.gather": lambda indices: baked.gather(indices, lambda shape, dtype: buffer),
        "np.take on np.memmap": lambda indices: np.take(mapped, indices, axis=0, out=array, mode="clip"),
        "copies": copies,
        "samples, stacked": lambda indices: torch.stack(baked.__getitems__(indices), out=buffer),
    }
    generator = np.random.default_rng(0)
    batches = [generator.permutation(len(dataset))[:size].tolist() for _ in range(16)]
    found: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(num_rounds + 1):
        for way in list(ways) if turn % 2 else list(ways)[::-1]:
            taken = seconds_per_batch(ways[way], batches, seconds / len(ways)) / size
            if turn:  # the first round maps the pages
                found[way].append(taken)
    return found


def seconds_per_batch(read: Callable[[list[int]], Any], batches: list[list[int]], seconds: float) -> float:
    """Seconds for one batch, over whole rounds of all batches."""
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds or not count:
        for indices in batches:
            read(indices)
        count += len(batches)
    return (time.perf_counter() - start) / count


def cold(folder: Path, dataset: Ready, num_rounds: int) -> dict[str, float]:
    """Milliseconds for one batch out of a file that is not in memory, by ``Baked`` and by ``np.take``."""
    manifest = Baked(folder).manifest
    file = folder / manifest.tables()[0].file
    size = min(BATCH, max(4, BATCH_BYTES // dataset.num_bytes))
    indices = np.random.default_rng(1).permutation(len(dataset))[:size].tolist()
    ours, theirs = [], []
    for _ in range(num_rounds):
        evict(file)
        ours.append(milliseconds(Baked(folder, verify="none").gather, indices))
        evict(file)  # no map is left that could hold it
        mapped = np.memmap(file, np.uint8, "r", shape=(len(dataset), dataset.num_bytes))
        theirs.append(milliseconds(functools.partial(mapped.take, axis=0), indices))
        del mapped
    return {"Baked.gather": statistics.median(ours), "np.take on np.memmap": statistics.median(theirs)}


def milliseconds(read: Callable[[list[int]], Any], indices: list[int]) -> float:
    start = time.perf_counter()
    read(indices)
    return (time.perf_counter() - start) * 1e3


def evict(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def report(name: str, part: Mapping[str, Any]) -> None:
    print(f"\nbakes of {part['num_samples']:,} samples of {name}")
    written, plain = part["written_bytes_s"], part["plainly_written_bytes_s"]
    print(f"    written {written / 1e9:.2f} GB/s (plain file, synced: {plain / 1e9:.2f} GB/s)")
    for way, found in part["sample_us"].items():
        print(
            f"    {way:<28}{found['median']:>10.2f} us a sample  [{found['low']:.2f} .. {found['high']:.2f}]"
        )
    for way, found in part["cold_batch_ms"].items():
        print(f"    {way:<28}{found:>10.1f} ms a batch from storage")


def targets(result: Mapping[str, Any]) -> list[Target]:
    found = []
    for name, part in result.items():
        if name == "3 KB":
            us = part["sample_us"]["Baked.gather"]
            found.append(harness.at_most("baked, gathered: 3 KB a sample", REQUIRED_US, us, unit=" us"))
        else:
            title = f"baked, gathered: {name} against plain copies"
            found.append(harness.at_most(title, REQUIRED_OVER_COPY, part["over_copies"]))
    return found


if __name__ == "__main__":
    sys.exit(main())
