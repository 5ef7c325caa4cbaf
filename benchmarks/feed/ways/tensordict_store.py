"""tensordict: the whole set memory-mapped, batches by its own batched indexing under torch's DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from sources import NUM_IMAGES, Images
from tensordict import TensorDict
from torch.utils.data import DataLoader

PACKAGES = ("tensordict",)


def images(settings: dict[str, Any]) -> Any:
    path = Path(settings["data"]) / f"tensordict-{NUM_IMAGES}"
    if not path.exists():
        plain = Images(settings["data"]).images
        stored = TensorDict({"image": plain, "label": torch.arange(len(plain))}, batch_size=[len(plain)])
        stored.memmap(str(path))
    dataset = TensorDict.load_memmap(str(path))
    loader: DataLoader[Any] = DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_size=settings["batch_size"],
        shuffle=True,
        num_workers=settings["workers"],
        persistent_workers=True,
        multiprocessing_context="fork",
        collate_fn=lambda batch: batch,
    )
    return lambda: ((batch["image"], batch["label"]) for batch in loader)
