"""dataloader-rs: worker threads of Rust that call the dataset; Python 3.13 or newer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sources
import torch
from dataloader_rs import PyDataloader, PyDataset

PACKAGES = ("dataloader-rs",)
Batch = tuple[torch.Tensor, torch.Tensor]


class Each(PyDataset):
    """A dataset sample by sample."""

    def __init__(self, dataset: Any) -> None:
        super().__init__()
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample: tuple[torch.Tensor, int] = self.dataset[index]
        return sample


def images(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return loader(sources.Images(settings["data"]), settings)


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return loader(sources.Jpegs(settings["data"]), settings)


def tiny(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    return loader(sources.Tiny(), settings)


def stacked(samples: Sequence[tuple[torch.Tensor, int]]) -> Batch:
    return torch.stack([data for data, _ in samples]), torch.tensor([label for _, label in samples])


def loader(dataset: Any, settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    workers = settings["workers"]
    made = PyDataloader(
        Each(dataset),
        batch_size=settings["batch_size"],
        shuffle=True,
        num_workers=workers,
        prefetch_depth=workers,
        collate_fn=stacked,
    )
    return lambda: made
