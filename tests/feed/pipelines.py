"""Datasets and transforms as users write them, for the tests of stages, the guard and the planner."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset


class Compose:
    """As torchvision's first: a list of callables."""

    def __init__(self, transforms: list[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        for transform in self.transforms:
            image = transform(image)
        return image


class ComposeModule(torch.nn.Module):
    """As torchvision's v2: a module whose transforms take and give any number of values."""

    def __init__(self, transforms: list[Callable[..., Any]]) -> None:
        super().__init__()
        self.transforms = transforms

    def forward(self, *inputs: Any) -> Any:
        unpack = len(inputs) > 1
        for transform in self.transforms:
            outputs = transform(*inputs)
            inputs = outputs if unpack else (outputs,)
        return outputs


ComposeModule.__name__ = "Compose"


class RandomApply(Compose):
    """Holds transforms and is no sequence of them."""

    def __call__(self, image: Any) -> Any:
        return super().__call__(image) if random.random() < 0.999 else image


class OneOf(Compose):
    """Applies one of them, chosen without drawing."""

    def __call__(self, image: Any) -> Any:
        return self.transforms[0](image)


class Halve:
    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image[..., ::2]


class RareFlip:
    """Flips one image in ten: two reads are mostly equal."""

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image.flip(-1) if torch.rand(()) < 0.1 else image


class Noise:
    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image + torch.randn(image.shape)


def to_float(image: torch.Tensor) -> torch.Tensor:
    return image.float() / 255


class Photos(Dataset[Any]):
    """Like ImageFolder: reads, applies its transforms, gives a pair."""

    def __init__(
        self,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        num: int = 12,
        shape: tuple[int, ...] = (3, 8, 16),
    ) -> None:
        self.transform = transform
        self.target_transform = target_transform
        self.num = num
        self.shape = shape

    def __len__(self) -> int:
        return self.num

    def read(self, index: int) -> torch.Tensor:
        values = np.random.default_rng(index).integers(0, 256, self.shape, dtype=np.uint8)
        return torch.from_numpy(values)

    def __getitem__(self, index: int) -> Any:
        image, target = self.read(index), index % 3
        if self.transform is not None:
            image = self.transform(image)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return image, target
