"""What every way reads: the same images, files and samples, made once, and what each sample must hold.

Imported in the peers' environments as well: torch, numpy and Pillow only.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

SIDE = 224
IMAGE_BYTES = 3 * SIDE * SIDE
NUM_IMAGES = 2048
NUM_JPEGS = 768
JPEG_WIDTH, JPEG_HEIGHT = 500, 375
NUM_TINY, TINY_FLOATS = 8192, 16
SAMPLES_PER_BLOCK = 8


def images_file(data: str, count: int = NUM_IMAGES) -> Path:
    """A ``.npy`` of uint8 images [count, 3, 224, 224]; the first four bytes of each hold its index."""
    path = Path(data) / f"images-{count}.npy"
    if not path.exists():
        generator = np.random.default_rng(0)
        array = generator.integers(0, 256, (count, 3, SIDE, SIDE), np.uint8)
        array.reshape(count, -1)[:, :4] = np.arange(count, dtype="<u4").view(np.uint8).reshape(count, 4)
        _publish(path, _npy(array))
    return path


def jpeg_files(data: str, count: int = NUM_JPEGS) -> list[Path]:
    """Photographs' stand-ins, 500 x 375, quality 90, near 90 KB each."""
    from PIL import Image

    folder = Path(data) / f"jpegs-{count}"
    paths = [folder / f"{index:05d}.jpg" for index in range(count)]
    if not paths[-1].exists():
        folder.mkdir(parents=True, exist_ok=True)
        generator = np.random.default_rng(1)
        for path in paths:
            coarse = Image.fromarray(generator.integers(0, 256, (24, 32, 3), np.uint8))
            smooth = np.asarray(coarse.resize((JPEG_WIDTH, JPEG_HEIGHT), Image.Resampling.BICUBIC), np.int16)
            grain = generator.normal(0, 14, smooth.shape).astype(np.int16)
            buffer = io.BytesIO()
            Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=90)
            _publish(path, buffer.getvalue())
    return paths


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def _publish(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(content)
    temporary.rename(path)


def decode_and_crop(content: bytes) -> torch.Tensor:
    """The work of every way on a JPEG: decode, random resized crop to 224, uint8 [224, 224, 3]."""
    from PIL import Image

    image: Any = Image.open(io.BytesIO(content)).convert("RGB")
    area = image.width * image.height * random.uniform(0.25, 1.0)
    aspect = random.uniform(3 / 4, 4 / 3)
    width = min(image.width, round((area * aspect) ** 0.5))
    height = min(image.height, round((area / aspect) ** 0.5))
    left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
    box = (left, top, left + width, top + height)
    return torch.from_numpy(np.array(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box=box)))


def index_of(images: torch.Tensor) -> list[int]:
    """Which images these are, from their own bytes."""
    heads = images.reshape(len(images), -1)[:, :4].contiguous()
    return [int(value) for value in np.asarray(heads).view("<u4").reshape(-1)]


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Cached images without a library: one uint8 tensor in memory, shared with forked workers."""

    def __init__(self, data: str) -> None:
        self.path = images_file(data)
        self.images = torch.from_numpy(np.load(self.path))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], index


class Jpegs(Dataset[tuple[torch.Tensor, int]]):
    """JPEG files on disk, decoded and cropped for every sample."""

    def __init__(self, data: str) -> None:
        self.paths = [str(path) for path in jpeg_files(data)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return decode_and_crop(Path(self.paths[index]).read_bytes()), index


class Tiny(Dataset[tuple[torch.Tensor, int]]):
    """Samples of 64 bytes: nothing to do but to deliver them."""

    def __init__(self, data: str = "") -> None:
        self.rows = torch.arange(NUM_TINY * TINY_FLOATS, dtype=torch.float32).view(NUM_TINY, TINY_FLOATS)

    def __len__(self) -> int:
        return NUM_TINY

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.rows[index], index


class Blocks(Dataset[torch.Tensor]):
    """Samples of which eight make a batch of ``num_bytes``: one copy into the batch, then only the transport.

    The batch is new every time: a tensor that was sent once stays in shared memory, and torch sends it again
    for nothing.
    """

    def __init__(self, num_bytes: int, num_batches: int) -> None:
        words = torch.arange(num_bytes // 8, dtype=torch.int64)
        self.samples = words.view(torch.uint8).view(SAMPLES_PER_BLOCK, -1)
        self.num_batches = num_batches

    def __len__(self) -> int:
        return self.num_batches * SAMPLES_PER_BLOCK

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index % SAMPLES_PER_BLOCK]

    def batch(self) -> torch.Tensor:
        """What every batch must hold."""
        return self.samples.view(-1)


def shuffled_batches(count: int, batch_size: int, seed: int) -> Iterator[Sequence[int]]:
    """A fresh permutation in batches; the last one may be short."""
    order = np.random.default_rng(seed).permutation(count).tolist()
    for start in range(0, count, batch_size):
        yield order[start : start + batch_size]
