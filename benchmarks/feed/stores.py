"""Stores of samples in memory, each behind the same three calls: what ``cache.py`` compares.

A store is made for ``count`` tensors of ``num_bytes`` bytes. ``put(index, tensor)`` writes one, new or again;
``read(indices, out)`` copies many, one per row of ``out``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

#: Where stores that need a file keep it: in memory, as the others.
MEMORY = Path("/dev/shm")


class Store(Protocol):
    def put(self, index: int, data: torch.Tensor) -> None: ...
    def read(self, indices: Sequence[int], out: torch.Tensor) -> None: ...


class Hotloop:
    """Samples are (tensor, number); a batch is gathered into the given memory."""

    def __init__(self, count: int, num_bytes: int) -> None:
        from hotloop.feed import SampleCache

        room = (count + 2) * (num_bytes + 512) + (4 << 20)
        self.cache = SampleCache(count, max_bytes=room)
        self.numbers = torch.empty(count, dtype=torch.int64)

    def put(self, index: int, data: torch.Tensor) -> None:
        assert self.cache.put(index, (data, index))

    def read(self, indices: Sequence[int], out: torch.Tensor) -> None:
        def memory(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            return out if dtype == torch.uint8 else self.numbers[: shape[0]]

        self.cache.gather(np.asarray(indices), memory)


class Lmdb:
    """Without syncing and with a writable map, the fastest it can be; values are read without a copy."""

    def __init__(self, count: int, num_bytes: int) -> None:
        import lmdb

        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        size = 3 * count * (num_bytes + 8192) + (64 << 20)
        self.environment = lmdb.open(
            self.folder.name, map_size=size, writemap=True, sync=False, metasync=False, lock=False
        )

    def put(self, index: int, data: torch.Tensor) -> None:
        with self.environment.begin(write=True) as writing:
            writing.put(index.to_bytes(4, "big"), memoryview(data.numpy()))

    def read(self, indices: Sequence[int], out: torch.Tensor) -> None:
        rows = out.numpy()
        with self.environment.begin(buffers=True) as reading:
            for row, index in enumerate(indices):
                rows[row] = np.frombuffer(reading.get(int(index).to_bytes(4, "big")), np.uint8)


class Stocaching:
    def __init__(self, count: int, num_bytes: int) -> None:
        from stocaching import SharedCache

        limit: Any = (count + 1) * (num_bytes + 1) / (1 << 30)
        self.cache = SharedCache(limit, count, (num_bytes,), torch.uint8)

    def put(self, index: int, data: torch.Tensor) -> None:
        self.cache.set_slot(index, data, allow_overwrite=True)

    def read(self, indices: Sequence[int], out: torch.Tensor) -> None:
        for row, index in enumerate(indices):
            out[row] = self.cache.get_slot(int(index))


class Tensordict:
    """One memory-mapped tensor for all samples."""

    def __init__(self, count: int, num_bytes: int) -> None:
        from tensordict import MemoryMappedTensor

        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        name = str(Path(self.folder.name) / "samples.memmap")
        self.samples = MemoryMappedTensor.zeros((count, num_bytes), dtype=torch.uint8, filename=name)

    def put(self, index: int, data: torch.Tensor) -> None:
        self.samples[index] = data

    def read(self, indices: Sequence[int], out: torch.Tensor) -> None:
        for row, index in enumerate(indices):
            out[row] = self.samples[int(index)]


class Diskcache:
    def __init__(self, count: int, num_bytes: int) -> None:
        import diskcache

        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.cache = diskcache.Cache(self.folder.name, size_limit=2 * count * (num_bytes + 4096))

    def put(self, index: int, data: torch.Tensor) -> None:
        self.cache[index] = data.numpy().tobytes()

    def read(self, indices: Sequence[int], out: torch.Tensor) -> None:
        rows = out.numpy()
        for row, index in enumerate(indices):
            rows[row] = np.frombuffer(self.cache[int(index)], np.uint8)


#: Name, class and the environment it runs in.
STORES: dict[str, tuple[type[Any], str]] = {
    "hotloop keep": (Hotloop, ""),
    "lmdb": (Lmdb, "lmdb"),
    "stocaching": (Stocaching, "stocaching"),
    "tensordict": (Tensordict, "tensordict"),
    "diskcache": (Diskcache, "diskcache"),
}
