"""What the tests of the disk tier store."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

IDENTITY = b"\x11" * 32


class Records(Dataset[Any]):
    """Samples of different sizes that depend on the index alone; counts its reads in this process."""

    def __init__(self, num: int = 60, num_bytes: int = 3000) -> None:
        self.num = num
        self.num_bytes = num_bytes
        self.reads: list[int] = []

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Any:
        self.reads.append(index)
        values = np.random.default_rng(index).integers(0, 256, self.num_bytes + index, dtype=np.uint8)
        return {"x": torch.from_numpy(values), "name": f"record {index}", "target": index}
