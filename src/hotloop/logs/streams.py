"""Columns of one kind of line, in bounded memory however long the file is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: So many times as few rows are kept once there are too many: odd, as little that recurs does so that often.
_FEWER: Final = 5
#: Rows that are left of a stream then.
_MAX_ROWS: Final = 1 << 13
#: Larger numbers are damage: no step, second or byte counts that far.
_LARGEST: Final = 1e15


@dataclass(kw_only=True)
class Stream:
    """[n] columns by role, in the order of the file. One row of ``stride`` in the file is kept."""

    name: str
    mode: str = "train"
    unit: str = "it"
    rank: int | None = None
    stride: int = 1
    num_rows: int = 0
    bar: bool = False
    _parts: list[dict[str, Floats]] = field(default_factory=list)
    _kept: int = 0

    def add(self, columns: dict[str, Floats]) -> None:
        """Append rows; columns may differ from call to call."""
        self.num_rows += len(columns["line"])
        columns = {
            role: np.where(np.abs(column) < _LARGEST, column, np.nan)[:: self.stride]
            for role, column in columns.items()
        }
        self._parts.append(columns)
        self._kept += len(columns["line"])
        if self._kept > _FEWER * _MAX_ROWS:
            fewer = {role: column[::_FEWER] for role, column in self.columns.items()}
            self._parts, self._kept = [fewer], len(fewer["line"])
            self.stride *= _FEWER

    @property
    def columns(self) -> dict[str, Floats]:
        """All rows; NaN where a row has no value for a role."""
        if len(self._parts) > 1:
            roles = list(dict.fromkeys(role for part in self._parts for role in part))
            sizes = [len(next(iter(part.values()))) for part in self._parts]
            # Shapes of line that take turns come as parts of a chunk; a line may hold many updates of a bar.
            order = np.argsort(
                np.concatenate([part.get("at", part["line"]) for part in self._parts]), kind="stable"
            )
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
