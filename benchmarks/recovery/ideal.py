"""The ideal loader: ``ideal.py SCRIPT ARGS...`` runs a script, its batches in memory after one epoch.

From then on a batch is one ``index_select`` per field, in the order that a permutation gives, whatever makes
samples out of the way. It is handed out by torch's own iterator, which hotloop watches in the tuned run too.
What a step took then is told at the end, as JSON on standard error.
"""

from __future__ import annotations

import atexit
import json
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

#: The key of what is told.
TOLD = "ideal_s_per_step"
original = DataLoader.__iter__
#: Of loaders alike: what tells them, and what they share from one epoch to the next.
KEPT: dict[tuple[Any, ...], Kept] = {}


class Epoch:
    """When each batch was asked for, and last, where it was gone through to its end, when it was over."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.over = 0

    def next_of(self, batches: Iterator[Any]) -> Any:
        self.asked.append(time.perf_counter())
        try:
            return next(batches)
        except StopIteration:
            self.over = 1
            raise


class Kept:
    """Batches of loaders alike: whole fields and the shape of a batch, once an epoch was seen."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.fields: list[torch.Tensor] = []
        self.tree: Any = None
        self.loader: DataLoader[Any] | None = None


def held(loader: DataLoader[Any]) -> Iterator[Any]:
    if getattr(loader, "is_ideal", False):
        return original(loader)
    key = (type(loader.dataset), len(loader.dataset), loader.batch_size)  # type: ignore[arg-type]
    kept = KEPT.setdefault(key, Kept())
    if not kept.fields:
        return timed(first(loader, kept), kept)
    if kept.loader is None:
        kept.loader = plain(kept, loader.batch_size or 1)
    return iter(kept.loader)  # by the way that hotloop watches


def plain(kept: Kept, batch_size: int) -> DataLoader[Any]:
    """A loader of batches that are there."""
    loader: DataLoader[Any] = DataLoader(range(len(kept.fields[0])), batch_size)  # type: ignore[arg-type]
    loader.is_ideal = True  # type: ignore[attr-defined]
    loader._get_iterator = lambda: Ideal(loader, kept)  # type: ignore[method-assign]
    return loader


def timed(batches: Iterator[Any], kept: Kept) -> Iterator[Any]:
    epoch = Epoch()
    kept.epochs.append(epoch)
    with suppress(StopIteration):
        while True:
            yield epoch.next_of(batches)


class Ideal(_SingleProcessDataLoaderIter):
    """Torch's iterator around batches that are there."""

    def __init__(self, loader: DataLoader[Any], kept: Kept) -> None:
        super().__init__(loader)
        self._batches = again(kept, loader.batch_size or 1)
        self._epoch = Epoch()
        kept.epochs.append(self._epoch)

    def _next_data(self) -> Any:
        return self._epoch.next_of(self._batches)


def first(loader: DataLoader[Any], kept: Kept) -> Iterator[Any]:
    rows, tree = [], None
    for batch in original(loader):
        leaves, tree = tree_flatten(batch)
        rows.append([leaf.clone() for leaf in leaves])
        yield batch
    kept.fields = [torch.cat(column) for column in zip(*rows, strict=True)]
    kept.tree = tree


def again(kept: Kept, batch_size: int) -> Iterator[Any]:
    order = torch.randperm(len(kept.fields[0]))
    for rows in order.split(batch_size):
        yield tree_unflatten([field.index_select(0, rows) for field in kept.fields], kept.tree)


def tell() -> None:
    """To the end of the last step, as the others are measured: they count what lies before an epoch to it."""
    used = max((kept.epochs for kept in KEPT.values()), key=lambda one: sum(map(batches, one)), default=[])
    before = used[1:2] if used[2:] else []  # after the first one all fields are put together
    steady = [epoch for epoch in used[2:] or used[1:] if batches(epoch)]
    if steady:
        begun = before[0].asked[-1] if before and before[0].over else steady[0].asked[0]
        steps = sum(map(batches, steady)) - (not steady[-1].over)
        print(json.dumps({TOLD: (steady[-1].asked[-1] - begun) / steps}), file=sys.stderr)


def batches(epoch: Epoch) -> int:
    return len(epoch.asked) - epoch.over


if __name__ == "__main__":
    DataLoader.__iter__ = held  # type: ignore[assignment, method-assign]
    atexit.register(tell)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
