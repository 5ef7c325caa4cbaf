"""What a dataset takes: per sample after each stage, in total, and in every process that keeps its own."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from hotloop.errors import UsageError

_FIELD: Final = re.compile(r"(?:(\d+)\*)?(\w+)(?:\[((?:\s*\d+\s*(?:,\s*\d+\s*)*)?)\])?")
_DTYPE: Final = re.compile(r"(?:u?int|b?float|complex)(\d+)(?:_\w+)?")
_HINT: Final = "write NAME=DTYPE[SHAPE]+..., as in 'decoded=uint8[720,1280,3]+float32[32,720,1280]'"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A sample as it is after one stage of its pipeline; ``sample_bytes`` may be a mean."""

    name: str
    fields: tuple[str, ...] = ()  # "uint8[3,1000]"
    sample_bytes: float


def parse_stage(text: str) -> Stage:
    """A stage written as ``NAME=DTYPE[SHAPE]+...``; ``2*uint8[720,1280,3]`` is two of the same.

    Raises:
        UsageError: anything else.
    """
    name, equals, rest = text.rpartition("=")
    if equals and not name.strip():
        raise UsageError(f"the stage {text!r} has no name", hint=_HINT)
    fields = tuple(part.strip() for part in rest.split("+"))
    size = sum(_num_bytes(field, text) for field in fields)
    if size == 0:
        raise UsageError(f"the stage {text!r} has no elements", hint=_HINT)
    return Stage(name=name.strip() or "sample", sample_bytes=float(size), fields=fields)


def _num_bytes(field: str, stage: str) -> int:
    """Bytes of all elements; types below a byte (``uint1``) are packed."""
    found = _FIELD.fullmatch(field)
    if found is None:
        raise UsageError(f"{field!r} in the stage {stage!r} is not DTYPE[SHAPE]", hint=_HINT)
    count, dtype, shape = found.groups()
    known = _DTYPE.fullmatch(dtype)
    bits = int(known[1]) if known else 8 if dtype == "bool" else 0
    if not 0 < bits <= 128:
        raise UsageError(
            f"{dtype!r} is no type of elements", hint="as in uint8, float16, bfloat16, int64, bool"
        )
    return int(count or 1) * math.ceil(
        math.prod(map(int, (shape or "").split(",") if shape else ())) * bits / 8
    )


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A dataset's stages in the order of its pipeline, and who reads it.

    ``num_workers`` is per rank, ``num_ranks`` on one machine. ``held_bytes``: what the dataset object itself
    keeps in memory, 0 where that is not known.
    """

    stages: tuple[Stage, ...]
    num_samples: int
    num_workers: int = 0
    num_ranks: int = 1
    batch_size: int = 1
    prefetch_factor: int = 2
    held_bytes: float = 0.0

    @property
    def num_processes(self) -> int:
        """Processes that make samples: every worker of every rank, or the ranks themselves."""
        return max(1, self.num_workers) * self.num_ranks

    @property
    def batches_ahead(self) -> int:
        """Batches a DataLoader may hold at once on this machine: in its queue, and the one in use."""
        return (self.num_workers * self.prefetch_factor + 1) * self.num_ranks

    @property
    def ahead_bytes(self) -> float:
        """Bytes of those batches, of samples as they leave the last stage."""
        last = self.stages[-1].sample_bytes if self.stages else 0.0
        return last * self.batch_size * self.batches_ahead
