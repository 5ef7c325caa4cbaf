"""Samples of the machine and of each process: lines of JSON while the run goes on, columns afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: The file in the raw folder.
NAME: Final = "system"

Sample = Mapping[str, float]
#: Samples of the machine and of processes: mappings with ``t_ns`` and, for processes, ``pid``.
Samples = tuple[Sequence[Sample], Sequence[Sample]]
Columns = dict[str, npt.NDArray[Any]]


def append(raw_dir: Path, samples: Samples) -> None:
    """Add one line. Raises OSError."""
    if any(samples):
        with (raw_dir / NAME).open("a", encoding="utf-8") as file:
            file.write(json.dumps(samples) + "\n")


def read(raw_dir: Path, start_ns: int) -> tuple[Columns, Columns]:
    """The columns of the machine and of all processes; ``t_s`` counts from ``start_ns``."""
    machine: list[Sample] = []
    processes: list[Sample] = []
    try:
        lines = (raw_dir / NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            samples = json.loads(line)
        except ValueError:  # torn: its writer was killed
            continue
        machine += samples[0]
        processes += samples[1]
    return _columns(machine, start_ns), _columns(processes, start_ns)


def _columns(samples: Sequence[Sample], start_ns: int) -> Columns:
    if not samples:
        return {}
    names = dict.fromkeys(name for sample in samples for name in sample)
    table = {name: np.array([sample.get(name, np.nan) for sample in samples], float) for name in names}
    times = np.array([sample["t_ns"] for sample in samples], np.int64)
    del table["t_ns"]
    seen = {name: values for name, values in table.items() if not np.isnan(values).all()}
    return {"t_s": (times - start_ns) / 1e9, **seen}


def by_pid(processes: Columns) -> dict[int, Columns]:
    """The columns of each process."""
    rest = dict(processes)
    pids = rest.pop("pid", np.zeros(0))
    return {int(pid): {name: values[pids == pid] for name, values in rest.items()} for pid in np.unique(pids)}
