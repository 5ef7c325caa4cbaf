"""torch's own DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sources import SAMPLES_PER_BLOCK, Blocks, Images, Jpegs, Tiny
from torch.utils.data import DataLoader, Dataset

Epoch = Callable[[], DataLoader[Any]]


def images(settings: dict[str, Any]) -> Epoch:
    return loader(Images(settings["data"]), settings)


def jpegs(settings: dict[str, Any]) -> Epoch:
    return loader(Jpegs(settings["data"]), settings)


def tiny(settings: dict[str, Any]) -> Epoch:
    return loader(Tiny(), settings)


def blocks(settings: dict[str, Any]) -> Epoch:
    dataset = Blocks(settings["num_bytes"], settings["count"])
    return loader(dataset, {**settings, "batch_size": SAMPLES_PER_BLOCK}, shuffle=False)


def loader(dataset: Dataset[Any], settings: dict[str, Any], *, shuffle: bool = True) -> Epoch:
    workers = settings["workers"]
    made: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=settings["batch_size"],
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context=settings.get("start", "fork") if workers else None,
    )
    return lambda: made
