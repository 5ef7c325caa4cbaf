"""Datasets the cache's tests read: what a sample is follows from its number alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Squares(Dataset[Any]):
    """A tensor of ``num_bytes`` filled with a pattern of its number, and the number; counts its own reads."""

    def __init__(self, num_items: int = 40, num_bytes: int = 1000) -> None:
        self.num_items, self.num_bytes, self._reads = num_items, num_bytes, 0

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < self.num_items:
            raise IndexError(index)
        self._reads += 1
        return pattern(index, self.num_bytes), index

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reads": 0}

    @property
    def reads(self) -> int:
        return self._reads


class Ragged(Squares):
    """Every sample has a size of its own, up to ``num_bytes``."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        super().__getitem__(index)
        return pattern(index, 1 + index * 7919 % self.num_bytes), index


def pattern(index: int, num_bytes: int) -> torch.Tensor:
    return torch.from_numpy((np.arange(num_bytes) * 31 + index * 17).astype(np.uint8))


def is_right(sample: tuple[torch.Tensor, int], index: int) -> bool:
    """Is this sample of a Squares or Ragged what the dataset gives?"""
    data, number = sample
    return number == index and bool((data == pattern(index, data.numel())).all())


def in_child(work: Callable[[], Any]) -> int:
    """Run ``work`` in a forked child; its pid. The child's exit status is 0 if ``work`` returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    torch.set_num_threads(1)  # the parent's other threads are not here
    try:
        work()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
