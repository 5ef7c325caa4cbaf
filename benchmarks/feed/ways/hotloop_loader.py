"""hotloop.feed: the Loader on the same datasets, on a cache, on a bake; torch's on those two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sources import SAMPLES_PER_BLOCK, Blocks, Images, Jpegs, Tiny, images_file
from torch.utils.data import DataLoader, Dataset
from ways import torch_loader

from hotloop import feed

Epoch = Callable[[], DataLoader[Any]]


def images(settings: dict[str, Any]) -> Epoch:
    return loader(Images(settings["data"]), settings)


def images_cached(settings: dict[str, Any]) -> Epoch:
    return loader(feed.cached(Images(settings["data"]), max_bytes="2GB"), settings)


def images_baked(settings: dict[str, Any]) -> Epoch:
    return loader(baked(settings), settings)


def images_cached_torch(settings: dict[str, Any]) -> Epoch:
    return torch_loader.loader(feed.cached(Images(settings["data"]), max_bytes="2GB"), settings)


def images_baked_torch(settings: dict[str, Any]) -> Epoch:
    return torch_loader.loader(baked(settings), settings)


def jpegs(settings: dict[str, Any]) -> Epoch:
    return loader(Jpegs(settings["data"]), settings)


def tiny(settings: dict[str, Any]) -> Epoch:
    return loader(Tiny(), settings)


def blocks(settings: dict[str, Any]) -> Epoch:
    dataset = Blocks(settings["num_bytes"], settings["count"])
    return loader(dataset, {**settings, "batch_size": SAMPLES_PER_BLOCK}, shuffle=False)


def baked(settings: dict[str, Any]) -> Dataset[Any]:
    """The images baked once per machine."""
    folder = Path(settings["data"]) / f"{images_file(settings['data']).stem}.baked"
    if not folder.exists():
        feed.bake(Images(settings["data"]), folder, num_workers=settings["workers"])
    return feed.Baked(folder)


def loader(dataset: Dataset[Any], settings: dict[str, Any], *, shuffle: bool = True) -> Epoch:
    workers = settings["workers"]
    made: DataLoader[Any] = feed.Loader(
        dataset,
        batch_size=settings["batch_size"],
        shuffle=shuffle,
        num_workers=workers,
        persistent_workers=workers > 0,
        multiprocessing_context=settings.get("start", "fork") if workers else None,
    )
    return lambda: made
