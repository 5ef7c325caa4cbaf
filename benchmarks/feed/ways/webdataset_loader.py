"""WebDataset: tar shards in the page cache, read in order of shards, shuffled in a buffer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import sources
import torch
import webdataset as wds

PACKAGES = ("webdataset",)
NUM_SHARDS = 8


def images(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    dataset = sources.Images(settings["data"])
    shards = written("raw", [bytes(image.numpy()) for image in dataset.images], settings)
    return loader(shards, raw_image, settings)


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    contents = [path.read_bytes() for path in sources.jpeg_files(settings["data"])]
    return loader(written("jpg", contents, settings), sources.decode_and_crop, settings)


def raw_image(content: bytes) -> torch.Tensor:
    array = np.frombuffer(bytearray(content), np.uint8)
    return torch.from_numpy(array.reshape(3, sources.SIDE, sources.SIDE))


def written(name: str, contents: list[bytes], settings: dict[str, Any]) -> list[str]:
    folder = Path(settings["data"]) / f"wds-{name}-{len(contents)}"
    if not folder.exists():
        temporary = folder.with_suffix(f".{os.getpid()}")
        temporary.mkdir(parents=True)
        for shard in range(NUM_SHARDS):
            with wds.TarWriter(str(temporary / f"{shard}.tar")) as writer:
                for index in range(shard, len(contents), NUM_SHARDS):
                    writer.write({"__key__": f"{index:07d}", "x.bin": contents[index]})
        temporary.rename(folder)
    return sorted(map(str, folder.glob("*.tar")))


def loader(shards: list[str], decode: Any, settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    dataset = (
        wds.WebDataset(shards, shardshuffle=NUM_SHARDS, detshuffle=False)
        .shuffle(256)
        .map(lambda sample: (decode(sample["x.bin"]), int(sample["__key__"])))
    )
    made = wds.WebLoader(
        dataset,
        batch_size=settings["batch_size"],
        num_workers=settings["workers"],
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return lambda: made
