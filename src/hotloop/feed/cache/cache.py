"""The cache itself: samples by number, in shared memory, for everybody who holds it."""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hotloop import units
from hotloop.feed import budget, layout
from hotloop.feed.cache import rendezvous
from hotloop.feed.cache.reading import MISSING, SampleReader
from hotloop.feed.cache.shared import Shared
from hotloop.feed.cache.table import INLINE, MAGIC, READY, Header, Row, Table, fence, table_bytes
from hotloop.feed.collating import Out
from hotloop.feed.errors import CacheError
from hotloop.feed.memory import SharedFile


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """The use of a cache by all workers of all ranks.

    ``saved_s`` is the time that hits did not spend making samples, summed over all workers.
    """

    num_items: int
    num_bytes: int
    resident_bytes: int
    limit_bytes: int
    hits: int
    misses: int
    saved_s: float
    notes: tuple[str, ...] = ()

    @property
    def hit_rate(self) -> float:
        """Hits among all readings, 0 before the first."""
        return self.hits / max(1, self.hits + self.misses)

    def __str__(self) -> str:
        used, limit = self.num_bytes / (1 << 20), self.limit_bytes / (1 << 20)
        return (
            f"Size {self.num_items} items; Memory {used:.1f}/{limit:.1f} MiB; "
            f"Hit Rate {self.hit_rate:.2%} ({self.hits} hits / {self.misses} misses)"
        )

    def details(self) -> str:
        """A second line: time saved, and what else there is to know."""
        return "; ".join([f"{units.duration(self.saved_s)} saved", *self.notes])


class SampleCache:
    """Samples by number, one copy for all workers (fork, spawn, forkserver) and ranks of a machine.

    Args:
        num_items: samples are numbered from 0 to below this.
        max_bytes: memory for all of it together, tables included: ``"50GB"``, ``"40%"``, ``"auto"``, bytes.
        fingerprint: 32 bytes that say what the samples are; processes that name the same share one cache.
            Without it the cache belongs to this process and its workers.

    Of several ranks (``LOCAL_WORLD_SIZE``) each that meets the others brings its share of ``max_bytes``:
    together they never exceed it, whether they find each other or not.

    Raises:
        CacheError: ``max_bytes`` does not hold even the table.
        ValueError: an argument makes no sense.
    """

    def __init__(
        self,
        num_items: int,
        *,
        max_bytes: str | float | int | None = "auto",
        fingerprint: bytes | None = None,
    ) -> None:
        self.num_items = num_items
        self._fingerprint = bytes(32) if fingerprint is None else fingerprint
        if len(self._fingerprint) != 32:
            raise ValueError(f"a fingerprint is 32 bytes, not {len(self._fingerprint)}")
        self._max_bytes = max_bytes
        self._notes: list[str] = []
        if fingerprint is None:
            self._attach(self._create())
            return
        key = fingerprint.hex()[:32]
        meeting = rendezvous.meet(key, self._create, self._accepts)
        self._attach(meeting.file)
        if meeting.note:
            self._notes.append(meeting.note)
        self._leave = weakref.finalize(self, _leave, os.getpid(), key, meeting.file.descriptor)
        header = self._shared.header
        with self._shared.lock:  # the limit grows with the ranks that have met
            ranks = header[Header.RANKS]
            allowed = header[Header.MAX_BYTES] * min(meeting.num_holders, ranks) // ranks
            header[Header.LIMIT] = max(header[Header.LIMIT], allowed)

    def get(self, index: int, default: Any = MISSING) -> Any:
        """Sample number ``index``, or ``default`` if it is not here. Counts as a reading."""
        sample = MISSING if self.stopped_by is not None else self._reader.read(index)
        self._shared.count(index, hit=sample is not MISSING)
        return default if sample is MISSING else sample

    def gather(self, indices: NDArray[np.int64], out: Out | None = None) -> Any:
        """The samples collated as torch's ``default_collate`` does it; MISSING if not all are here and alike.

        One vectorised copy per leaf, into tensors that ``out(shape, dtype)`` gives. Readings are counted, and
        none where it is MISSING.
        """
        batch = MISSING if self.stopped_by is not None else self._reader.gather(indices, out)
        if batch is not MISSING:
            self._shared.count_hits(indices)
        return batch

    @property
    def stopped_by(self) -> int | None:
        """The sample for which the cache was stopped; None while it serves."""
        return self._shared.header[Header.STOPPED] - 1 if self._shared.header[Header.STOPPED] else None

    def stop(self, index: int) -> bool:
        """Take in and give out nothing more, in all processes, because of a sample; False: it had already."""
        with self._shared.lock:
            first = self.stopped_by is None
            if first:
                self._shared.header[Header.STOPPED] = index + 1
        return first

    def put(self, index: int, sample: Any, *, seconds: float = 0.0) -> bool:
        """Offer a sample that took ``seconds`` to make; True if it is in the cache now because of this."""
        return self.stopped_by is None and self._writer.put(index, sample, seconds=seconds)

    def get_or_make(self, index: int, make: Callable[[], Any]) -> Any:
        """Sample number ``index``; if it is not here it is made, timed, and kept if there is room."""
        sample = self.get(index)
        if sample is not MISSING:
            return sample
        began = time.perf_counter()
        sample = make()
        self.put(index, sample, seconds=time.perf_counter() - began)
        return sample

    def __contains__(self, index: int) -> bool:
        return self.stopped_by is None and bool(self._shared.state[index] == READY)

    @property
    def resident_bytes(self) -> int:
        """Memory the cache takes from the machine now, tables and all."""
        return os.fstat(self._file.descriptor).st_blocks * 512

    @property
    def limit_bytes(self) -> int:
        """Memory it may take."""
        return int(self._shared.header[Header.LIMIT])

    def note(self, text: str) -> None:
        """Something to say along with the statistics."""
        self._notes.append(text)

    def stats(self) -> CacheStats:
        """Figures of all ranks together."""
        table = self._shared.table
        rows = table.rows[table.rows[:, Row.PID] > 0]
        total = rows.sum(axis=0, dtype=np.int64)
        ready = table.state == READY
        return CacheStats(
            num_items=int(ready.sum()),
            num_bytes=int(table.num_bytes[ready].sum()),
            resident_bytes=self.resident_bytes,
            limit_bytes=self.limit_bytes,
            hits=int(total[Row.HITS]),
            misses=int(total[Row.MISSES]),
            saved_s=float(total[Row.SAVED_NS]) / 1e9,
            notes=self._all_notes(),
        )

    def close(self) -> None:
        """Let go of the memory."""
        if (leaving := getattr(self, "_leave", None)) is not None:
            leaving()
        self._shared.lock.close()
        self._file.close()

    def _all_notes(self) -> tuple[str, ...]:
        header, notes = self._shared.header, list(self._notes)
        limit, most = header[Header.LIMIT], header[Header.MAX_BYTES]
        if limit < most:
            notes.append(
                f"limit {units.size(limit)} of {units.size(most)}: "
                f"not all {header[Header.RANKS]} ranks of this machine have met here"
            )
        if header[Header.IS_PAUSED]:
            notes.append("stopped growing: memory is short")
        return tuple(notes)

    def _create(self) -> SharedFile:
        """New memory with an empty table."""
        ranks = budget.local_world_size()
        most = budget.memory_budget(self._max_bytes, world=1)
        table = table_bytes(self.num_items)
        if table > most // ranks // 2:
            each = f" for each of {ranks} ranks" if ranks > 1 else ""
            raise CacheError(
                f"a cache of {units.size(most // ranks)}{each} is too small: "
                f"the table of {self.num_items} samples alone takes {units.size(table)}",
                hint="give max_bytes a larger value",
            )
        file = SharedFile(rendezvous.FILE_NAME)
        file.reserve(table)
        Table(file, self.num_items).begin(max_bytes=most, ranks=ranks, fingerprint=self._fingerprint)
        return file

    def _accepts(self, file: SharedFile) -> bool:
        """Is a file that was found at the meeting place this cache?"""
        if os.fstat(file.descriptor).st_size < table_bytes(self.num_items):
            return False
        table = Table(file, self.num_items)
        return (
            table.header[Header.MAGIC] == MAGIC
            and table.header[Header.NUM_ITEMS] == self.num_items
            and table.fingerprint == self._fingerprint
        )

    def _attach(self, file: SharedFile) -> None:
        self._file = file
        self._shared = Shared(file, num_items=self.num_items)
        self._reader = SampleReader(self._shared)
        self._writer = SampleWriter(self._shared)

    def __deepcopy__(self, memo: dict[int, Any]) -> SampleCache:
        return self

    def __getstate__(self) -> dict[str, Any]:
        names = ("num_items", "_fingerprint", "_max_bytes", "_notes", "_file")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._attach(self._file)


def _leave(pid: int, key: str, descriptor: int) -> None:
    if os.getpid() == pid:
        rendezvous.leave(key, descriptor)


class SampleWriter:
    """Writes a cache through one process's hold on it."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._warned = False

    def put(self, index: int, sample: Any, *, seconds: float) -> bool:
        """Offer a sample; True if it is in the cache now because of this."""
        shared = self._shared
        if shared.state[index] == READY:
            return False
        try:
            encoded = layout.encode(sample)
        except Exception as error:  # whatever a user's object does when it is pickled
            self._warn(index, error)
            return False
        if encoded.layout.num_bytes > shared.arena.available_bytes():
            return False
        try:
            with shared.lock:
                return self._put(index, encoded, seconds)
        except OSError as error:
            self._warn(index, error)
            return False

    def _put(self, index: int, encoded: layout.Encoded, seconds: float) -> bool:
        """Under the lock: whoever dies here leaves at most a place that nobody uses."""
        shared, table = self._shared, self._shared.table
        if table.state[index] == READY:
            return False
        number, num_bytes = shared.layouts.number(encoded.layout), encoded.layout.num_bytes
        trailer = shared.layouts.trailer(encoded.layout) if number == INLINE else None
        total = num_bytes if trailer is None else num_bytes + trailer.size
        start = shared.arena.place(total)
        if start is None:
            return False
        for field, payload in zip(encoded.layout.fields, encoded.payloads, strict=True):
            shared.arena.write(payload, start + field.offset)
        if trailer is not None:
            shared.arena.write(trailer, start + num_bytes)
        shared.arena.take(total)
        table.offset[index], table.num_bytes[index] = start, total
        table.cost_s[index], table.layout[index] = seconds, number
        fence()
        table.state[index] = READY
        return True

    def _warn(self, index: int, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"sample {index} is not cached: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=4
            )
