"""Datasets that the tests of bake read, in a module of its own so that any process can import them."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch


class Given:
    """Samples that are simply there."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]


class Images:
    """Dense leaves, text of any length, and now and then a sample of another form."""

    def __init__(self, length: int = 96, side: int = 8, odd_every: int = 0) -> None:
        self.length = length
        self.side = side
        self.odd_every = odd_every

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        if not 0 <= index < self.length:
            raise IndexError(index)
        generator = np.random.default_rng(index)
        sample: dict[str, Any] = {
            "image": torch.from_numpy(generator.integers(0, 256, (3, self.side, self.side), dtype=np.uint8)),
            "label": index % 10,
            "weight": np.float32(index / 7),
            "caption": "word " * (index % 5),
        }
        if self.odd_every and index % self.odd_every == 1:
            sample["extra"] = generator.random(index % 7)
        return sample


class Counting(Images):
    """Says which samples were read, in this process."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reads: list[int] = []

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.reads.append(index)
        return super().__getitem__(index)


class Telling(Images):
    """Workers write their process id to a pipe at one sample, and wait there for word from another pipe."""

    def __init__(self, at: int, tell: int, wait: int) -> None:
        super().__init__()
        self.at = at
        self._ends = tell, wait
        self._parent = os.getpid()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == self.at and os.getpid() != self._parent:
            os.write(self._ends[0], os.getpid().to_bytes(4, "little"))
            os.read(self._ends[1], 1)
        return super().__getitem__(index)


class Killed(Images):
    """A worker dies at one sample: the first time only, or every time."""

    def __init__(self, at: int, once: str = "") -> None:
        super().__init__()
        self.at = at
        self._once = once
        self._parent = os.getpid()

    def __getitem__(self, index: int) -> dict[str, Any]:
        if (
            index == self.at
            and os.getpid() != self._parent
            and not (self._once and Path(self._once).exists())
        ):
            if self._once:
                Path(self._once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Scene:
    points: Any
    name: str


class Rows:
    """Reads rows of an array in a file."""

    def __init__(self, path: Path, transform: Any = None) -> None:
        self.path = path
        self.transform = transform
        self._rows: Any = None

    def __len__(self) -> int:
        return int(np.load(self.path, mmap_mode="r").shape[0])

    def __getitem__(self, index: int) -> Any:
        if self._rows is None:
            self._rows = np.load(self.path, mmap_mode="r")
        row = self._rows[index]
        return row if self.transform is None else self.transform(row)
