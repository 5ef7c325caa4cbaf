"""FFCV: raw images and JPEG files in its own file format, everything compiled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import sources
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder, SimpleRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter

PACKAGES = ("ffcv", "numba")


class Raw:
    """Images as FFCV wants them: [224, 224, 3]."""

    def __init__(self, data: str) -> None:
        self.images = np.load(sources.images_file(data), mmap_mode="r")

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.array(self.images[index]).reshape(sources.SIDE, sources.SIDE, 3), index


class Decoded:
    """Whole photographs; FFCV compresses them anew."""

    def __init__(self, data: str) -> None:
        self.paths = sources.jpeg_files(data)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        return Image.open(self.paths[index]).convert("RGB"), index


def images(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    path = written("raw", Raw(settings["data"]), settings, write_mode="raw")
    return loader(path, SimpleRGBImageDecoder(), settings)


def images_resized(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    """More work than the others do: FFCV's usual random resized crop of the same raw images."""
    path = written("raw", Raw(settings["data"]), settings, write_mode="raw")
    return loader(path, RandomResizedCropRGBImageDecoder((sources.SIDE, sources.SIDE)), settings)


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    path = written("jpg", Decoded(settings["data"]), settings, write_mode="jpg", jpeg_quality=90)
    return loader(path, RandomResizedCropRGBImageDecoder((sources.SIDE, sources.SIDE)), settings)


def written(name: str, dataset: Any, settings: dict[str, Any], **field: Any) -> Path:
    path = Path(settings["data"]) / f"ffcv-{name}-{len(dataset)}.beton"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        fields = {"image": RGBImageField(**field), "label": IntField()}
        DatasetWriter(str(temporary), fields, num_workers=2).from_indexed_dataset(dataset)
        temporary.rename(path)
    return path


def loader(path: Path, decoder: Any, settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    made = Loader(
        str(path),
        batch_size=settings["batch_size"],
        num_workers=settings["workers"],
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=False,
        pipelines={"image": [decoder, ToTensor()], "label": [IntDecoder(), ToTensor()]},
    )
    return lambda: ((image, label.reshape(-1)) for image, label in made)
