"""One rank of memory.py: read everything twice, say so, and stand still until the input ends.

python rank.py WAY WORKERS BUDGET_BYTES DATA
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler

sys.path.insert(0, str(Path(__file__).parent))

import sources

#: More than the budget holds.
EXCESS = 1.5


class Mapped(Dataset[tuple[torch.Tensor, int]]):
    """Images read from a file by copies: what is held afterwards is the cache's."""

    def __init__(self, data: str, count: int) -> None:
        self.path, self.count = str(sources.images_file(data)), count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        # Opened for every read: a mapping that stays would count as memory of this process.
        images = np.load(self.path, mmap_mode="r")
        return torch.from_numpy(np.array(images[index])), index


class Remembered(Mapped):
    """The cache as it is usually written: a dictionary in the dataset, so one in every worker."""

    def __init__(self, data: str, count: int, limit: int) -> None:
        super().__init__(data, count)
        self.limit, self.kept = limit, dict[int, Any]()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index not in self.kept:
            sample = super().__getitem__(index)
            if len(self.kept) >= self.limit:
                return sample
            self.kept[index] = sample
        return self.kept[index]


def main() -> int:
    way, workers, budget, data = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    count = min(int(EXCESS * budget) // sources.IMAGE_BYTES, sources.NUM_IMAGES)
    dataset, loader_class = prepared(way, data, count, budget)
    sampler: Any = DistributedSampler(dataset, world, rank)
    loader = loader_class(
        dataset,
        batch_size=16,
        sampler=sampler,
        num_workers=workers,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    samples = 0
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            samples += len(batch[0])
    print(json.dumps({"samples": samples}), flush=True)
    sys.stdin.read()
    return 0


def prepared(way: str, data: str, count: int, budget: int) -> tuple[Any, Any]:
    """The dataset and the loader's class of one way."""
    plain = Mapped(data, count)
    if way == "hotloop":
        from hotloop.feed import Loader, cached

        return cached(plain, max_bytes=budget), Loader
    if way == "nothing cached":
        return plain, DataLoader
    if way == "dictionary per worker":
        return Remembered(data, count, budget // sources.IMAGE_BYTES), DataLoader
    from ways.stocaching_cache import Cached

    return Cached(plain, limit_bytes=budget), DataLoader


if __name__ == "__main__":
    sys.exit(main())
