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

    def __init__(self, dataset: Images) -> None:
        self.dataset = dataset
        limit_gib = NUM_IMAGES * (IMAGE_BYTES + 1) // (1 << 30) + 1
        self.cache = SharedCache(limit_gib, len(dataset), (3, SIDE, SIDE), torch.uint8)

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.cache.get_slot(index)
        if image is None:
            image = self.dataset[index][0]
            self.cache.set_slot(index, image)
        return image, index


def images(settings: dict[str, Any]) -> Any:
    return torch_loader.loader(Cached(Images(settings["data"])), settings)
