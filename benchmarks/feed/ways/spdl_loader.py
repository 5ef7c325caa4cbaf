"""SPDL: threads that collate whole batches, its process loader, and its shared-memory arena."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sources
import torch
from spdl.dataloader import get_pytorch_dataloader
from spdl.pipeline import PipelineBuilder, SharedMemorySegmentPool, iterate_in_subprocess

PACKAGES = ("spdl-core", "spdl-io")
Batch = tuple[torch.Tensor, list[int]]


def images(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    dataset = sources.Images(settings["data"])

    def batch(indices: Sequence[int]) -> Batch:
        return dataset.images[torch.as_tensor(indices)], list(indices)

    return in_threads(batch, len(dataset), settings)


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    return in_threads(
        functools.partial(stacked, sources.Jpegs(settings["data"])), sources.NUM_JPEGS, settings
    )


def tiny(settings: dict[str, Any]) -> Callable[[], Iterable[Batch]]:
    return in_threads(functools.partial(stacked, sources.Tiny()), sources.NUM_TINY, settings)


def stacked(dataset: Any, indices: Sequence[int]) -> Batch:
    return torch.stack([dataset[index][0] for index in indices]), list(indices)


def in_threads(batch: Callable[[Sequence[int]], Batch], count: int, settings: dict[str, Any]) -> Any:
    """One fresh pipeline per epoch, as SPDL's documentation builds them."""
    seeds = itertools.count()

    def epoch() -> Iterator[Batch]:
        workers = settings["workers"]
        pipeline = (
            PipelineBuilder()
            .add_source(sources.shuffled_batches(count, settings["batch_size"], next(seeds)))
            .pipe(batch, concurrency=workers)
            .add_sink(2 * workers)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline

    return epoch


def images_in_processes(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return in_processes(sources.Images(settings["data"]), settings)


def jpegs_in_processes(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return in_processes(sources.Jpegs(settings["data"]), settings)


def in_processes(dataset: Any, settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    loader = get_pytorch_dataloader(
        dataset,
        batch_size=settings["batch_size"],
        shuffle=True,
        num_workers=settings["workers"],
        multiprocessing_context="fork",
    )
    return lambda: loader


def blocks(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    """One process behind a pool of shared segments; its arrays are views that keep their segment."""
    num_bytes = settings["num_bytes"]
    arena = SharedMemorySegmentPool(num_bytes + (1 << 16), 5)
    source = functools.partial(Arrays, num_bytes, settings["count"])
    iterable = iterate_in_subprocess(source, buffer_size=2, mp_context="fork", arena=arena)
    return lambda: iterable


class Arrays:
    """Ready batches as arrays, which is what the arena takes; making them costs nothing."""

    def __init__(self, num_bytes: int, count: int) -> None:
        self.block = sources.Blocks(num_bytes, 1).batch().numpy()
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield self.block
