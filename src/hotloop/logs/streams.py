"""Columns of one kind of line, in bounded memory however long the file is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from hotloop.logs.meanings import COUNTERS
from hotloop.logs.templates import Floats

#: Rows kept of one stream; beyond twice as many, neighbours are merged.
MAX_ROWS: Final = 1 << 14
#: Larger numbers are damage: no step, second or byte counts that far.
_LARGEST: Final = 1e15


@dataclass(kw_only=True)
class Stream:
    """[n] columns by role, in the order of the file. ``stride`` rows of the file are one row here.

    Of merged rows counters keep the last value, ``line`` the first, the rest the mean; ``weight`` is how
    many rows of the file a row stands for.
    """

    name: str
    mode: str = "train"
    unit: str = "it"
    rank: int | None = None
    stride: int = 1
    num_rows: int = 0
    bar: bool = False
    _parts: list[dict[str, Floats]] = field(default_factory=list)
    _kept: int = 0

    def add(self, columns: dict[str, Floats], stride: int = 1) -> None:
        """Append rows, of which each already stands for ``stride``; columns may differ from call to call."""
        real = stride + 1 if stride > 1 else 1  # as ``templates.thinned`` reads
        self.num_rows += len(columns["line"]) * real
        columns = {**columns, "weight": np.full(len(columns["line"]), float(real))}
        for role, column in columns.items():
            columns[role] = np.where(np.abs(column) < _LARGEST, column, np.nan)
        while stride < self.stride:
            columns, stride = _halved(columns), stride * 2
        self._parts.append(columns)
        self._kept += len(next(iter(columns.values())))
        if self._kept > 2 * MAX_ROWS:
            merged = _halved(self.columns)
            self._parts, self._kept = [merged], len(merged["line"])
            self.stride *= 2

    @property
    def columns(self) -> dict[str, Floats]:
        """All rows; NaN where a row has no value for a role."""
        if len(self._parts) > 1:
            roles = list(dict.fromkeys(role for part in self._parts for role in part))
            sizes = [len(next(iter(part.values()))) for part in self._parts]
            # Two shapes of line that take turns come as two parts of a chunk.
            order = np.argsort(np.concatenate([part["line"] for part in self._parts]), kind="stable")
            self._parts = [
                {
                    role: np.concatenate(
                        [
                            part.get(role, np.full(size, np.nan))
                            for part, size in zip(self._parts, sizes, strict=True)
                        ]
                    )[order]
                    for role in roles
                }
            ]
        return self._parts[0] if self._parts else {}

    def get(self, role: str) -> Floats | None:
        """A column, None where no row has a value."""
        column = self.columns.get(role)
        return column if column is not None and np.isfinite(column).any() else None

    def __len__(self) -> int:
        return self._kept


def _halved(columns: dict[str, Floats]) -> dict[str, Floats]:
    out = {}
    for role, column in columns.items():
        odd = len(column) % 2
        pairs = np.append(column, column[-1:]) if odd else column
        first, second = pairs[::2], pairs[1::2]
        if role == "line":
            out[role] = first
        elif role == "weight":
            out[role] = first + second
            out[role][-1] -= second[-1] * odd
        elif role in COUNTERS:
            out[role] = np.where(np.isfinite(second), second, first)
        else:
            with np.errstate(invalid="ignore"):
                mean = (first + second) / 2
            out[role] = np.where(np.isfinite(mean), mean, np.where(np.isfinite(first), first, second))
    return out
