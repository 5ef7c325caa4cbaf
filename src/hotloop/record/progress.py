"""How far training is, counted while rows come in, as the probe counts it (``probe.counting``)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from hotloop.record import raw
from hotloop.record import rows as r


@dataclass(kw_only=True)
class Count:
    """Of one process, up to byte ``read`` of its rows."""

    read: int = 0
    over: bool = False  # the process has ended
    fetched: bool = False  # a batch was handed out since the last backward
    batches: int = 0  # that a backward followed
    backwards: int = 0
    updates: Counter[int] = field(default_factory=Counter)  # optimizer -> steps

    @property
    def steps(self) -> int:
        """Steps so far."""
        return max([self.batches, *self.updates.values()]) or self.backwards

    def add(self, rows: npt.NDArray[Any]) -> None:
        """Count the next rows."""
        kinds = rows["kind"]
        ends = (kinds == r.FETCH) & ((rows["flags"] & r.FETCH_END) != 0)
        picked = kinds[((kinds == r.FETCH) & ~ends) | (kinds == r.BACKWARD)]
        if len(picked):
            before = np.concatenate([[r.FETCH if self.fetched else r.BACKWARD], picked[:-1]])
            backward = picked == r.BACKWARD
            self.batches += int((backward & (before == r.FETCH)).sum())
            self.backwards += int(backward.sum())
            self.fetched = bool(picked[-1] == r.FETCH)
        self.updates.update(rows["obj"][kinds == r.OPTIMIZER].tolist())


class Progress:
    """Follows the raw files of a run."""

    def __init__(self, raw_dir: Path) -> None:
        self._raw_dir = raw_dir
        self._counts: dict[str, Count] = {}

    def look(self) -> tuple[int, int]:
        """Pid and steps so far of the living process that has trained longest; zeros before any has."""
        best = (0, 0)
        for files in raw.find(self._raw_dir):
            count = self._counts.setdefault(files.key, Count())
            if count.over:
                continue
            count.over = not psutil.pid_exists(files.pid)
            rows, count.read = raw.read_rows(files.rows, count.read)
            count.add(rows)
            if count.steps > best[1] and not count.over:
                best = (files.pid, count.steps)
        return best
