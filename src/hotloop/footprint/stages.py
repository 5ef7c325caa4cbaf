"""What a dataset takes: per sample after each stage, in total, and in every process that keeps its own."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from hotloop.errors import UsageError

_FIELD: Final = re.compile(r"(?:(\d+)\*)?(\w+)(?:\[([\d,\s]*)\])?")
_DTYPE: Final = re.compile(r"(?:u?int|b?float|complex)(\d+)(?:_\w+)?")
_HINT: Final = "write NAME=DTYPE[SHAPE]+..., as in 'decoded=uint8[720,1280,3]+float32[32,720,1280]'"


@dataclass(frozen=True, kw_only=True)
class Field:
    """One tensor or array of a sample: ``count`` times ``dtype[shape]``."""

    dtype: str
    shape: tuple[int, ...]
    count: int = 1

    @property
    def num_bytes(self) -> int:
        """Bytes of all its elements; types below a byte (``uint1``) are packed."""
        return self.count * math.ceil(math.prod(self.shape) * bits(self.dtype) / 8)

    def __str__(self) -> str:
        times = f"{self.count}*" if self.count > 1 else ""
        return f"{times}{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A sample as it is after one stage of its pipeline; ``sample_bytes`` may be a mean."""

    name: str
    sample_bytes: float
    fields: tuple[Field, ...] = ()

    def total_bytes(self, num_samples: int) -> float:
        """The whole dataset, kept once."""
        return self.sample_bytes * num_samples


def bits(dtype: str) -> int:
    """Bits of one element of a torch or numpy type.

    Raises:
        UsageError: no such type.
    """
    found = _DTYPE.fullmatch(dtype.removeprefix("torch."))
    size = int(found[1]) if found else 8 if dtype.endswith("bool") else 0
    if not 0 < size <= 128:
        raise UsageError(
            f"{dtype!r} is no type of elements", hint="as in uint8, float16, bfloat16, int64, bool"
        )
    return size


def parse_stage(text: str) -> Stage:
    """A stage written as ``NAME=DTYPE[SHAPE]+...``; ``2*uint8[720,1280,3]`` is two of the same.

    Raises:
        UsageError: anything else.
    """
    name, equals, rest = text.rpartition("=")
    if equals and not name.strip():
        raise UsageError(f"the stage {text!r} has no name", hint=_HINT)
    fields = tuple(_field(part.strip(), text) for part in rest.split("+"))
    size = sum(field.num_bytes for field in fields)
    if size == 0:
        raise UsageError(f"the stage {text!r} has no elements", hint=_HINT)
    return Stage(name=name.strip() or "sample", sample_bytes=float(size), fields=fields)


def _field(text: str, whole: str) -> Field:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} in the stage {whole!r} is not DTYPE[SHAPE]", hint=_HINT)
    sizes = [part.strip() for part in (found[3] or "").split(",")]
    if sizes != [""] and not all(part.isdigit() for part in sizes):
        raise UsageError(f"the shape [{found[3]}] in the stage {whole!r} has a gap", hint=_HINT)
    bits(found[2])
    return Field(
        dtype=found[2],
        shape=tuple(int(part) for part in sizes if part),
        count=int(found[1] or 1),
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
