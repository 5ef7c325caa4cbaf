"""What the machine allows: forked processes fill shared slots, a byte on a pipe for each batch, no loader.

Two slots a worker, batches in order, nothing else: no faults, no types, no seeds, no collation.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sources
import torch

Batch = tuple[torch.Tensor, Sequence[int]]
Fill = Callable[[Any, Any], None]


def images(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    rows = sources.Images(settings["data"]).images.numpy()
    return filled(rows.shape, rows.dtype, lambda indices, out: _take(rows, indices, out), settings)


def tiny(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    rows = sources.Tiny().rows.numpy()
    return filled(rows.shape, rows.dtype, lambda indices, out: _take(rows, indices, out), settings)


def blocks(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    num, num_bytes = sources.SAMPLES_PER_BLOCK, settings["num_bytes"]
    rows = sources.Blocks(num_bytes, 1).samples.numpy()
    shape = (settings["count"] * num, num_bytes // num)
    return filled(
        shape, rows.dtype, lambda indices, out: np.copyto(out, rows), {**settings, "batch_size": num}
    )


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    paths = sources.jpeg_files(settings["data"])

    def fill(indices: Any, out: Any) -> None:
        for row, index in enumerate(indices):
            out[row] = sources.decode_and_crop(Path(paths[index]).read_bytes())

    return filled((len(paths), sources.SIDE, sources.SIDE, 3), np.dtype(np.uint8), fill, settings)


def _take(rows: Any, indices: Any, out: Any) -> None:
    np.take(rows, indices, 0, out=out, mode="clip")  # any other mode copies twice


def filled(shape: tuple[int, ...], dtype: Any, fill: Fill, settings: dict[str, Any]) -> Any:
    """Epochs of ``shape[0]`` samples whose batches ``fill`` writes in the workers."""
    size, count = settings["batch_size"], shape[0]
    workers = [_Worker((2, size, *shape[1:]), dtype, fill) for _ in range(settings["workers"])]
    seed = 0

    def epoch() -> Iterator[Batch]:
        nonlocal seed
        seed += 1
        batches = sources.shuffled_batches(count, size, seed)
        under_way: deque[tuple[_Worker, int, Sequence[int]]] = deque()

        def give(worker: _Worker, slot: int) -> None:
            indices = next(batches, None)
            if indices is not None:
                os.write(worker.tasks, np.array([slot, len(indices), *indices]).tobytes())
                under_way.append((worker, slot, indices))

        for slot in range(2):
            for worker in workers:
                give(worker, slot)
        while under_way:
            worker, slot, indices = under_way.popleft()
            os.read(worker.replies, 1)
            yield worker.slots[slot, : len(indices)], indices
            give(worker, slot)

    return epoch


class _Worker:
    """A process that ends when its pipe does."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, fill: Fill) -> None:
        memory = mmap.mmap(-1, int(np.prod(shape)) * dtype.itemsize)
        out = np.frombuffer(memory, dtype).reshape(shape)
        self.slots = torch.from_numpy(out)
        tasks, self.tasks = os.pipe()
        self.replies, replies = os.pipe()
        if os.fork():
            os.close(tasks)
            os.close(replies)
            return
        try:
            os.close(self.tasks)
            # A short task is read alone: it is an epoch's last.
            while task := os.read(tasks, 8 * (2 + shape[1])):
                slot, count, *indices = np.frombuffer(task, np.int64)
                fill(indices, out[slot, :count])
                os.write(replies, b".")
        finally:
            os._exit(0)
