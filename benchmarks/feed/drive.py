"""One process of one way: run it, check what it delivers, time it, write a number.

    python drive.py MODULE CALL MODE SETTINGS OUT

The same code for every way and in every environment: only ``ways/MODULE.py:CALL`` differs. It takes the
settings and returns a function that gives an epoch: an iterable of batches whose first field is the data.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))

import sources

Epoch = Callable[[], Iterable[Any]]


def main() -> int:
    module, call, mode, given, out = sys.argv[1:6]
    settings = json.loads(given)
    torch.set_num_threads(1)
    # Warnings of the peers about themselves are not ours to read.
    warnings.simplefilter("ignore")
    way = importlib.import_module(f"ways.{module}")
    make: Callable[[dict[str, Any]], Epoch] = getattr(way, call)
    result = MODES[mode](make, settings)
    names = ("torch", "numpy", "pillow", *getattr(way, "PACKAGES", ()))
    result["versions"] = {name: importlib.metadata.version(name) for name in names}
    Path(out).write_text(json.dumps(result))
    return 0


def throughput(make: Callable[[dict[str, Any]], Epoch], settings: dict[str, Any]) -> dict[str, Any]:
    """Samples per second over whole epochs, every batch copied into a reused buffer."""
    epoch = make(settings)
    buffer = check(epoch(), settings)
    # A cache that was just filled, a file that was just mapped: the first passes over either cost more.
    start = time.perf_counter()
    while time.perf_counter() - start < settings["seconds"] / 2:
        for batch in epoch():
            data = tensor(batch)
            buffer[: len(data)].copy_(data)
    num_samples, num_epochs, start = 0, 0, time.perf_counter()
    while not num_epochs or time.perf_counter() - start < settings["seconds"]:
        for batch in epoch():
            data = tensor(batch)
            buffer[: len(data)].copy_(data)
            num_samples += len(data)
        num_epochs += 1
    wall_s = time.perf_counter() - start
    return {"value": num_samples / wall_s, "epochs": num_epochs, "wall_s": wall_s}


def check(epoch: Iterable[Any], settings: dict[str, Any]) -> torch.Tensor:
    """Warm up with one epoch that must deliver every sample once; the buffer for the copies."""
    buffer, seen = torch.empty(0), []
    for batch in epoch:
        data = tensor(batch)
        if len(buffer) < len(data):
            buffer = torch.zeros_like(data)
        buffer[: len(data)].copy_(data)
        seen += sources.index_of(data) if settings.get("index_in_bytes") else tensor(batch, 1).tolist()
    if sorted(map(int, seen)) != list(range(settings["count"])):
        raise AssertionError(f"an epoch delivered {len(seen)} samples, {len(set(seen))} of them different")
    return buffer


def first_batch(make: Callable[[dict[str, Any]], Epoch], settings: dict[str, Any]) -> dict[str, Any]:
    """Seconds from asking for an iterator to its first batch: the median over fresh loaders."""
    times = []
    for _ in range(settings["repeats"]):
        epoch = make(settings)
        start = time.perf_counter()
        iterator = iter(epoch())
        next(iterator)
        times.append(time.perf_counter() - start)
        del iterator, epoch
    return {"value": float(np.median(times)), "all_s": times}


def transport(make: Callable[[dict[str, Any]], Epoch], settings: dict[str, Any]) -> dict[str, Any]:
    """Bytes per second from worker to main process, and of plain copies in this process before and after."""
    num_bytes = settings["num_bytes"]
    before = memcpy(num_bytes)
    epoch = make(settings)
    buffer, expected = torch.zeros(num_bytes, dtype=torch.uint8), sources.Blocks(num_bytes, 1).batch()
    for batch in epoch():
        if not torch.equal(tensor(batch).reshape(-1), expected):
            raise AssertionError("a batch arrived changed")
    carried, start = 0, time.perf_counter()
    while time.perf_counter() - start < settings["seconds"]:
        for batch in epoch():
            data = tensor(batch).reshape(-1)
            carried += len(data)
            if settings.get("copy_out"):
                buffer.copy_(data)
    wall_s = time.perf_counter() - start
    value, reference = carried / wall_s, (before + memcpy(num_bytes)) / 2
    return {
        "value": value,
        "memcpy": reference,
        "share": value / reference,
        "memcpy_in_turn": memcpy(num_bytes, num_targets=5),
        "wall_s": wall_s,
    }


def memcpy(num_bytes: int, *, num_targets: int = 1, seconds: float = 0.15) -> float:
    """Bytes per second of one thread copying an ordinary array into one that is reused, or several in turn.

    Several in turn do not stay in a processor's cache, nor do the batches of a loader that reads ahead.
    """
    source = np.ones(num_bytes, np.uint8)
    targets = [np.zeros(num_bytes, np.uint8) for _ in range(num_targets)]
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 2 * num_targets or time.perf_counter() - start < seconds:
        begin = time.perf_counter()
        np.copyto(targets[len(times) % num_targets], source)
        times.append(time.perf_counter() - begin)
    return num_bytes / float(np.median(times))


def tensor(batch: Any, field: int = 0) -> torch.Tensor:
    """One field of a batch, whatever a loader makes of batches; no copy."""
    value = batch if isinstance(batch, torch.Tensor | np.ndarray) else batch[field]
    if isinstance(value, torch.Tensor):
        return value
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else torch.as_tensor(value)


MODES = {"throughput": throughput, "first_batch": first_batch, "transport": transport}

if __name__ == "__main__":
    sys.exit(main())
