"""datago: files decoded, cropped and resized by threads of Rust, one sample at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sources
import torch
from datago import DatagoClient

PACKAGES = ("datago",)


def jpegs(settings: dict[str, Any]) -> Callable[[], Iterable[Any]]:
    """Its own decoder and its own crop to the nearest aspect ratio, which is not random."""
    folder = sources.jpeg_files(settings["data"])[0].parent
    config = {
        "source_type": "file",
        "source_config": {"root_path": str(folder), "random_sampling": False, "rank": 0, "world_size": 1},
        "image_config": {
            "crop_and_resize": True,
            "default_image_size": sources.SIDE,
            "downsampling_ratio": 32,
            "min_aspect_ratio": 1.0,
            "max_aspect_ratio": 1.0,
            "pre_encode_images": False,
        },
        "limit": sources.NUM_JPEGS,
        "samples_buffer_size": 2 * settings["batch_size"],
    }

    def epoch() -> Iterator[tuple[torch.Tensor, list[int]]]:
        client = DatagoClient(json.dumps(config))
        client.start()
        images, labels = [], []
        while (sample := client.get_sample()) is not None:
            images.append(np.asarray(sample.image))
            labels.append(int(Path(sample.id).stem))
            if len(images) == settings["batch_size"]:
                yield torch.from_numpy(np.stack(images)), labels
                images, labels = [], []
        if images:
            yield torch.from_numpy(np.stack(images)), labels
        client.stop()

    return epoch
