"""LMDB under torch's DataLoader: one key per image, read without a copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from sources import IMAGE_BYTES, SIDE, Images
from torch.utils.data import Dataset
from ways import torch_loader

PACKAGES = ("lmdb",)


class Stored(Dataset[tuple[torch.Tensor, int]]):
    """Opened in every worker: an environment does not survive a fork."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.transaction: Any = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.transaction is None:
            environment = lmdb.open(str(self.path), readonly=True, lock=False, readahead=False)
            self.transaction = environment.begin(buffers=True)
        value = np.frombuffer(self.transaction.get(index.to_bytes(4, "big")), np.uint8)
        return torch.from_numpy(value).view(3, SIDE, SIDE), index


def images(settings: dict[str, Any]) -> Any:
    dataset = Images(settings["data"])
    path = Path(settings["data"]) / f"lmdb-{len(dataset)}"
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        size = 2 * len(dataset) * (IMAGE_BYTES + 4096)
        with (
            lmdb.open(str(temporary), map_size=size) as environment,
            environment.begin(write=True) as writing,
        ):
            for index, image in enumerate(dataset.images):
                writing.put(index.to_bytes(4, "big"), image.numpy().tobytes(), append=True)
        temporary.rename(path)
    return torch_loader.loader(Stored(path, len(dataset)), settings)
