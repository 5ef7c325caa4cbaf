"""stocaching: a shared cache of fixed slots under torch's DataLoader."""

from __future__ import annotations

from typing import Any

import torch
from sources import IMAGE_BYTES, NUM_IMAGES, SIDE, Images
from stocaching import SharedCache
from torch.utils.data import Dataset
from ways import torch_loader

PACKAGES = ("stocaching",)


class Cached(Dataset[tuple[torch.Tensor, int]]):
    """As its README shows it."""

    def __init__(self, dataset: Dataset[tuple[torch.Tensor, int]], *, limit_bytes: int) -> None:
        self.dataset = dataset
        # A fraction of a GiB is taken as well, whatever its annotation says.
        limit_gib: Any = limit_bytes / (1 << 30)
        self.cache = SharedCache(limit_gib, len(dataset), (3, SIDE, SIDE), torch.uint8)  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.cache.get_slot(index)
        if image is None:
            image = self.dataset[index][0]
            self.cache.set_slot(index, image)
        return image, index


def images(settings: dict[str, Any]) -> Any:
    limit = NUM_IMAGES * (IMAGE_BYTES + 1)
    return torch_loader.loader(Cached(Images(settings["data"]), limit_bytes=limit), settings)
