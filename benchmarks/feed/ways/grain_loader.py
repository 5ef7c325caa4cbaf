"""Grain: its threads and its processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import grain
import numpy as np
import sources

PACKAGES = ("grain",)


class Arrays:
    """A dataset of tensors as a source of arrays."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        data, label = self.dataset[int(index)]
        return np.asarray(data), np.int64(label)


def images(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return loader(sources.Images(settings["data"]), settings)


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return loader(sources.Jpegs(settings["data"]), settings)


def tiny(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return loader(sources.Tiny(), settings)


def loader(dataset: Any, settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    """Threads read and decode; batches are prefetched as its documentation says."""
    seeds = itertools.count()
    workers = settings["workers"]

    def epoch() -> Iterable[Any]:
        source = grain.MapDataset.source(Arrays(dataset)).shuffle(seed=next(seeds))
        options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=2 * workers)
        return source.batch(settings["batch_size"], drop_remainder=False).to_iter_dataset(options)

    return epoch
