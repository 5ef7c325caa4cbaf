"""The Recording: everything one run left, in memory. Made by ``record.read``; needs numpy, never torch."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from hotloop.record.rows import LONG, ROW_FIELDS

ROW_DTYPE: Final = np.dtype(ROW_FIELDS)

#: Rows of one process up to here simply lie in memory (24 MiB); the measurement takes as many at once.
IN_MEMORY: Final = 1 << 20


def empty_rows(num_rows: int, folder: Path | None) -> npt.NDArray[Any]:
    """Room for so many rows: many lie in a file beside the recording, or where other temporary files are."""
    num_bytes = num_rows * ROW_DTYPE.itemsize
    for place in (folder, None) if num_rows > IN_MEMORY else ():
        try:
            with tempfile.TemporaryFile(dir=place) as file:
                # Reserved before it is mapped: a full disk is an error here and would be SIGBUS later.
                os.posix_fallocate(file.fileno(), 0, num_bytes)
                return np.asarray(np.memmap(file, ROW_DTYPE, "r+", shape=(num_rows,)))
        except OSError:  # read-only, full
            continue
    return np.empty(num_rows, ROW_DTYPE)


def in_turn(rows: npt.NDArray[Any], at_once: int = IN_MEMORY // 8) -> Iterator[npt.NDArray[Any]]:
    """The rows in runs, each given back when the next one is asked for."""
    for at in range(0, len(rows), at_once):
        yield rows[at : at + at_once]
        release(rows)


def release(rows: npt.NDArray[Any]) -> None:
    """Give back the memory that reading these rows took, where they lie in a file; they stay readable."""
    base: Any = rows
    while base is not None and not isinstance(base, mmap.mmap):
        base = getattr(base, "base", None)
    if base is not None:
        base.madvise(mmap.MADV_DONTNEED)


Note = dict[str, Any]


def durations_ns(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """[n] durations in nanoseconds, long intervals included."""
    scale = np.where(rows["flags"] & LONG, 1000, 1).astype(np.int64)
    result: npt.NDArray[np.int64] = rows["dur"].astype(np.int64) * scale
    return result


def last_ns(rows: npt.NDArray[Any]) -> int:
    """When the last of these rows closed, 0 without rows."""
    return int((rows["start"].astype(np.int64) + durations_ns(rows)).max(initial=0))


def moved(rows: npt.NDArray[Any], shift_ns: int) -> npt.NDArray[Any]:
    """The same rows, so much later."""
    for piece in in_turn(rows) if shift_ns else ():
        piece["start"] += np.uint64(shift_ns)
    return rows


class _Rows:
    """A field with an array, or with what reads it each time it is asked for (``Later``)."""

    def __get__(self, process: Any, owner: object = None) -> Any:
        if process is None:
            raise AttributeError  # a field without a default
        held = vars(process)["rows"]
        return held() if isinstance(held, Later) else held

    def __set__(self, process: Any, value: Any) -> None:
        vars(process)["rows"] = value


@dataclass(frozen=True)
class Later:
    """Rows that stay on disk, in pieces: ``read`` reads those of which ``index`` is given."""

    index: npt.NDArray[np.int64]  # [pieces, 4] number, rows, when the first began, when the last closed (ns)
    read: Callable[[npt.NDArray[np.int64]], npt.NDArray[Any]]
    shift_ns: int = 0

    @property
    def num_rows(self) -> int:
        """In all pieces."""
        return int(self.index[:, 1].sum())

    def __call__(self, index: npt.NDArray[np.int64] | None = None) -> npt.NDArray[Any]:
        """[rows] of these pieces or all, read now; dtype ROW_DTYPE."""
        return moved(self.read(self.index if index is None else index), self.shift_ns)


@dataclass(frozen=True, kw_only=True)
class Process:
    """One observed process. ``rows`` are sorted by start; of a large recording they are read when asked for.

    ``notes`` maps a note's type to all notes of that type, in the order written.
    """

    pid: int
    ppid: int
    role: str  # "main" (trains or may train), "worker" (DataLoader worker), "other"
    rank: int
    start_ns: int
    end_ns: int  # exit as seen by the launcher, or the last row
    rows: npt.NDArray[Any] = cast(Any, _Rows())  # noqa: RUF009 - dtype ROW_DTYPE
    notes: Mapping[str, list[Note]]
    workers: tuple[Process, ...] = ()
    cuts: tuple[int, ...] = ()  # rows before which others are left out

    @property
    def origin_ns(self) -> int:
        """The instant all its times are counted from: its start, its first row where that is not known."""
        return self.start_ns or (int(self.rows["start"][0]) if len(self.rows) else 0)

    @property
    def num_rows(self) -> int:
        """How many rows there are; reads none."""
        held = vars(self)["rows"]
        return held.num_rows if isinstance(held, Later) else len(held)

    def loaded(self) -> Process:
        """Itself with its rows, and those of its workers, in memory."""
        return replace(self, rows=self.rows, workers=tuple(worker.loaded() for worker in self.workers))

    def moved(self, shift_ns: int, **fields: Any) -> Process:
        """Itself with other fields and later rows, which are read no sooner."""
        held = vars(self)["rows"]
        later = isinstance(held, Later)
        rows = replace(held, shift_ns=held.shift_ns + shift_ns) if later else moved(held, shift_ns)
        return replace(self, rows=cast(Any, rows), **fields)

    def first(self, kind: str) -> Note:
        """The first note of a type, or an empty one."""
        found = self.notes.get(kind)
        return found[0] if found else {}

    def last(self, kind: str) -> Note:
        """The last note of a type, or an empty one."""
        found = self.notes.get(kind)
        return found[-1] if found else {}


@dataclass(frozen=True, kw_only=True)
class InForce:
    """A patch that was in force in a run: the files it changes, and those of them that were loaded."""

    files: tuple[str, ...]
    met: tuple[str, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """Files of the patch that no process loaded: of them the run says nothing."""
        return tuple(file for file in self.files if file not in self.met)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What one run left: its command, its training processes (``ranks``), the machine, the sampled system."""

    folder: Path | None
    command: tuple[str, ...]
    exit_code: int | None  # None: still running, or the launcher was killed
    wall_s: float
    start_ns: int
    start_unix_s: float
    ranks: tuple[Process, ...]  # sorted by rank; processes that reached torch and are no workers
    machine: Mapping[str, Any]  # see launch.machine
    system: Mapping[str, npt.NDArray[Any]]  # column name -> samples at 1-2 Hz; "t_s" since start_ns
    # pid -> columns
    process_system: Mapping[int, Mapping[str, npt.NDArray[Any]]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # what hotloop could not see, in words
    complete: bool = True  # False: the run or its launcher was killed
    num_jobs: int = 1  # trainings seen; of several, ``measure.measure`` leaves the ranks of one
    num_beside: float = 0.0  # other trainings that went on while that one did, on average
    without_torch: tuple[str, ...] = ()  # interpreters that looked for torch and could not import it
    torch_failed: tuple[str, ...] = ()  # why a torch that is there could not be imported, in words
    cwd: str = ""  # where the command was started; its processes may have gone elsewhere
    mark: str = ""  # see record.runfile
    patch: InForce | None = None  # code of the run that is not what lies on disk
    nodes: tuple[Recording, ...] = ()  # of a merged run: what each machine saw, on one clock

    @property
    def processes(self) -> tuple[Process, ...]:
        """Every training process, each followed by its workers."""
        return tuple(one for rank in self.ranks for one in (rank, *rank.workers))

    def node_of(self, pid: int) -> Recording:
        """What the machine of a training process saw: of a merged run its node's part, else all."""
        return next((node for node in self.nodes if any(one.pid == pid for one in node.ranks)), self)
