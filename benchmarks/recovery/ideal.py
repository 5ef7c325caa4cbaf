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
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

#: The key of what is told.
TOLD = "ideal_s_per_step"
original = DataLoader.__iter__
#: Of loaders alike: batches of the first epoch, then whole fields and the shape of a batch.
HELD: dict[tuple[Any, ...], Any] = {}
#: When each batch was asked for, a list for each epoch; of the loader that most batches came from.
ASKED: dict[tuple[Any, ...], list[list[float]]] = {}


def held(loader: DataLoader[Any]) -> Iterator[Any]:
    key = (type(loader.dataset), len(loader.dataset), loader.batch_size)  # type: ignore[arg-type]
    asked: list[float] = []
    ASKED.setdefault(key, []).append(asked)
    if key not in HELD:
        return timed(first(loader, key), asked)
    return Ideal(again(loader, *HELD[key]), asked)


def timed(batches: Iterator[Any], asked: list[float]) -> Iterator[Any]:
    for batch in batches:
        asked.append(time.perf_counter())
        yield batch


class Ideal(_SingleProcessDataLoaderIter):
    """Torch's iterator around batches that are there."""

    def __init__(self, batches: Iterator[Any], asked: list[float]) -> None:
        plain = DataLoader(range(1))  # type: ignore[arg-type]
        super().__init__(plain)
        self._batches, self._asked = batches, asked

    def _next_data(self) -> Any:
        batch = next(self._batches)
        self._asked.append(time.perf_counter())
        return batch


def first(loader: DataLoader[Any], key: tuple[Any, ...]) -> Iterator[Any]:
    rows, tree = [], None
    for batch in original(loader):
        leaves, tree = tree_flatten(batch)
        rows.append([leaf.clone() for leaf in leaves])
        yield batch
    HELD[key] = ([torch.cat(column) for column in zip(*rows, strict=True)], tree)


def again(loader: DataLoader[Any], fields: list[torch.Tensor], tree: Any) -> Iterator[Any]:
    order = torch.randperm(len(fields[0]))
    for rows in order.split(loader.batch_size or 1):
        yield tree_unflatten([field.index_select(0, rows) for field in fields], tree)


def tell() -> None:
    epochs = max(ASKED.values(), key=lambda found: sum(map(len, found)), default=[])
    steady = [asked for asked in epochs[2:] or epochs[1:] if len(asked) > 1]
    if steady:
        steps = sum(len(asked) - 1 for asked in steady) + len(steady) - 1
        print(json.dumps({TOLD: (steady[-1][-1] - steady[0][0]) / steps}), file=sys.stderr)


if __name__ == "__main__":
    DataLoader.__iter__ = held  # type: ignore[assignment, method-assign]
    atexit.register(tell)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
