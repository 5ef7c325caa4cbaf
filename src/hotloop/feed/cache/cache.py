"""The cache itself: samples by number, in shared memory, for everybody who holds it."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotloop import units
from hotloop.feed import budget, layout
from hotloop.feed.cache import rendezvous
from hotloop.feed.cache.errors import CacheError
from hotloop.feed.cache.gather import Batched, plan_batch
from hotloop.feed.cache.layouts import INLINE, Layouts
from hotloop.feed.cache.lock import SharedLock, fence
from hotloop.feed.cache.policies import POLICIES, Policy
from hotloop.feed.cache.policies.clairvoyant import Clairvoyant
from hotloop.feed.cache.statistics import CacheStats
from hotloop.feed.cache.storage import Arena, Blocks, Pause, Space, Stack
from hotloop.feed.cache.table import CLAIMED, EMPTY, MAGIC, READY, Header, Row, Table, table_bytes
from hotloop.feed.collating import Out
from hotloop.feed.memory import SharedFile
from hotloop.feed.tree import paths, tree_map

#: Stands for «not here» where None may be a sample.
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING", "__slots__": ()})()

#: Samples that an eviction looks at first; the whole table only if these do not make enough room.
WINDOW = 8192

_PADDING = np.zeros(layout.ALIGNMENT, np.uint8)


class SampleCache:
    """Samples by number, one copy for all workers (fork, spawn, forkserver) and ranks of a machine.

    Args:
        num_items: samples are numbered from 0 to below this.
        max_bytes: memory for all of it together, tables included: ``"50GB"``, ``"40%"``, ``"auto"``, bytes.
        policy: ``keep``, ``lru``, ``cost`` or ``clairvoyant``.
        fingerprint: 32 bytes that say what the samples are; processes that name the same share one cache.
            Without it the cache belongs to this process and its workers.
        copy: hand out copies. ``False`` (``keep`` only) hands out views on pages that cannot be written to:
            writing into such an array is an error, writing into such a tensor ends the process.

    Of several ranks (``LOCAL_WORLD_SIZE``) each that meets the others brings its share of ``max_bytes``: together
    they never exceed it, whether they find each other or not.

    Raises:
        CacheError: ``max_bytes`` does not hold even the table.
        ValueError: an argument makes no sense.
    """

    def __init__(
        self,
        num_items: int,
        *,
        max_bytes: str | float | int | None = "auto",
        policy: str = "keep",
        fingerprint: bytes | None = None,
        copy: bool = True,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy {policy!r} is none of {', '.join(POLICIES)}")
        if not copy and POLICIES[policy].evicts:
            raise ValueError(f"copy=False needs policy='keep': {policy!r} gives memory to other samples")
        self.num_items, self.policy, self.copy = num_items, policy, copy
        self.rank = int(os.environ.get("RANK", "0"))
        self._fingerprint = fingerprint or bytes(32)
        self._max_bytes = max_bytes
        self._notes: tuple[str, ...] = ()
        if fingerprint is None:
            self._attach(self._create())
            return
        key = fingerprint.hex()[:32]
        meeting = rendezvous.meet(key, self._create, self._accepts)
        self._attach(meeting.file)
        self._notes = (meeting.note,) if meeting.note else ()
        self._leave = weakref.finalize(self, _leave, os.getpid(), key, meeting.file.descriptor)
        self._welcome(meeting.num_holders)

    # -- Reading ---------------------------------------------------------------------------------------------

    def get(self, index: int, default: Any = MISSING) -> Any:
        """Sample number ``index``, or ``default`` if it is not here. Counts as a reading."""
        sample = self._read(index)
        self._count(index, sample is not MISSING)
        return default if sample is MISSING else sample

    def __contains__(self, index: int) -> bool:
        return bool(self._state[index] == READY)

    def get_or_make(self, index: int, make: Callable[[], Any]) -> Any:
        """Sample number ``index``; if it is not here it is made, timed, and kept if the policy wants it."""
        sample = self.get(index)
        if sample is not MISSING:
            return sample
        began = time.perf_counter()
        sample = make()
        self.put(index, sample, seconds=time.perf_counter() - began)
        return sample

    def gather(self, indices: NDArray[np.int64], out: Out | None = None) -> Any:
        """The samples collated as torch's ``default_collate`` does it; MISSING if they are not all here and alike.

        One vectorised copy per leaf, into tensors that ``out(shape, dtype)`` gives. MISSING counts as nothing.
        """
        table = self._table
        if not len(indices) or (table.state[indices] != READY).any():
            return MISSING
        version = table.version[indices]
        numbers = table.layout[indices]
        number = int(numbers[0])
        if (numbers != number).any() or number == INLINE or table.scattered[indices].any():
            return MISSING
        fence()
        batched = self._batched_for(number)
        if batched is None or (version & 1).any():
            return MISSING
        offsets = table.offset[indices]
        end = int(offsets.max()) + batched.num_bytes
        if self._evicts and end > self._header[Header.FRONTIER]:
            return MISSING
        try:
            arena = self._arena.bytes(end)
        except OSError:
            return MISSING
        batch = batched.gather(arena, offsets, out or _empty)
        if self._evicts:
            fence()
            if (table.version[indices] != version).any() or (table.state[indices] != READY).any():
                return MISSING
            self._policy.used(indices)
        self._count_many(indices)
        return batched.collated(batch)

    # -- Writing ---------------------------------------------------------------------------------------------

    def put(self, index: int, sample: Any, *, seconds: float = 0.0) -> bool:
        """Offer a sample that took ``seconds`` to make; True if it is in the cache now because of this."""
        if self._state[index] == READY:
            return False
        try:
            encoded = layout.encode(sample)
        except Exception as error:  # whatever a user's object does when it is pickled
            self._warn_unstorable(index, error)
            return False
        parts, num_bytes = _parts(encoded)
        if not self._evicts and num_bytes > self._space.available_bytes():
            self._header[Header.FULL] = 1
            return False
        try:
            if not self._claim(index, encoded.layout, parts, num_bytes, seconds):
                return False
            self._space.write(index, parts)
        except OSError as error:
            self._release_claim(index)
            self._warn_unstorable(index, error)
            return False
        except BaseException:
            self._release_claim(index)
            raise
        fence()
        self._state[index] = READY
        return True

    def _claim(
        self, index: int, of: layout.Layout, parts: list[NDArray[np.uint8]], num_bytes: int, seconds: float
    ) -> bool:
        """Find a place for a sample and mark it as being written by us; may add to its parts."""
        table = self._table
        row = self._own_row()
        with self._locked():
            if table.state[index] == READY:
                return False
            if table.state[index] == CLAIMED and not self._take_over(index):
                return False
            number = self._layouts.number(of)
            if number == INLINE:
                parts.append(self._layouts.trailer(of))
                num_bytes += parts[-1].size
            table.cost_s[index] = seconds
            table.num_bytes[index] = num_bytes
            if not self._place(index, num_bytes):
                self._header[Header.FULL] = 1
                return False
            table.layout[index] = number
            table.owner[index] = row + 1
            table.state[index] = CLAIMED
        return True

    def _take_over(self, index: int) -> bool:
        """Free a claim whose process is gone."""
        owner = int(self._table.owner[index])
        if owner and self._table.row_is_alive(owner - 1):
            return False
        self._forget(index)
        return True

    def _forget(self, index: int) -> None:
        self._table.state[index] = EMPTY
        self._space.release(index)

    def _release_claim(self, index: int) -> None:
        row = self._own_row()
        with self._locked():
            if self._table.state[index] == CLAIMED and self._table.owner[index] == row + 1:
                self._forget(index)

    def _place(self, index: int, num_bytes: int) -> bool:
        if self._space.allocate(index, num_bytes):
            return True
        if not self._evicts:
            return False
        threshold = self._policy.threshold(index)
        start = self._window % max(self.num_items, 1)
        self._window = start + WINDOW
        if self._displace(index, num_bytes, threshold, start, start + WINDOW):
            return True
        return self.num_items > WINDOW and self._displace(index, num_bytes, threshold, 0, self.num_items)

    def _displace(self, index: int, num_bytes: int, threshold: float, start: int, stop: int) -> bool:
        """Evict the most urgent of a stretch of the table, if that makes enough room for the new sample."""
        items = start + np.flatnonzero(self._table.state[start:stop] == READY)
        urgency = self._policy.urgency(items)
        items, urgency = items[urgency > threshold], urgency[urgency > threshold]
        items = items[np.argsort(-urgency, kind="stable")]
        needed = int(self._space.held_bytes(np.array([index]))[0]) - self._space.available_bytes()
        gained = np.cumsum(self._space.held_bytes(items))
        if not len(items) or gained[-1] < needed:
            return False
        enough = max(1, int(np.searchsorted(gained, needed)) + 1)
        for position, victim in enumerate(items.tolist(), 1):
            self._evict(victim)
            if position >= enough and self._space.allocate(index, num_bytes):
                return True
        return False

    def _evict(self, index: int) -> None:
        """An odd version tells readers that the sample is on its way out; a repair finishes what was begun."""
        table = self._table
        table.version[index] += 1
        fence()
        table.state[index] = EMPTY
        fence()
        table.version[index] += 1
        self._space.release(index)
        self._row[Row.EVICTIONS] += 1

    # -- Everything else -------------------------------------------------------------------------------------

    def plan(self, indices: NDArray[np.int64]) -> None:
        """Tell the clairvoyant policy what this process and its workers will read, in order."""
        if isinstance(self._policy, Clairvoyant):
            with self._locked():
                self._policy.plan(indices)

    def note(self, text: str) -> None:
        """Something to say along with the statistics."""
        self._notes = (*self._notes, text)

    def sweep(self) -> None:
        """Free what dead processes had claimed, and try again to grow if growth was paused."""
        with self._locked():
            for index in self._table.dead_claims().tolist():
                self._forget(index)
            self._header[Header.PAUSED_UNTIL_NS] = 0

    @property
    def resident_bytes(self) -> int:
        """Memory the cache takes from the machine now, tables and all."""
        return os.fstat(self._file.descriptor).st_blocks * 512

    @property
    def limit_bytes(self) -> int:
        """Memory it may take."""
        return int(self._header[Header.LIMIT])

    def stats(self, *, merged: bool = True) -> CacheStats:
        """Figures of all ranks, or of this one."""
        return self._stats(None if merged else self.rank)

    def stats_by_rank(self) -> list[CacheStats]:
        """Figures of every rank that read or wrote."""
        rows = self._table.rows
        return [self._stats(int(rank)) for rank in np.unique(rows[rows[:, Row.PID] > 0, Row.RANK])]

    def close(self) -> None:
        """Let go of the memory; samples handed out as views stay valid."""
        if (leaving := getattr(self, "_leave", None)) is not None:
            leaving()
        self._lock.close()
        self._file.close()

    def _stats(self, rank: int | None) -> CacheStats:
        table, header = self._table, self._header
        rows = table.rows[table.rows[:, Row.PID] > 0]
        if rank is not None:
            rows = rows[rows[:, Row.RANK] == rank]
        total = rows.sum(axis=0, dtype=np.int64)
        ready = table.state == READY
        return CacheStats(
            rank=rank,
            policy=self.policy,
            num_items=int(ready.sum()),
            num_bytes=int(table.num_bytes[ready].sum()),
            resident_bytes=self.resident_bytes,
            limit_bytes=header[Header.LIMIT],
            hits=int(total[Row.HITS]),
            misses=int(total[Row.MISSES]),
            evictions=int(total[Row.EVICTIONS]),
            saved_s=float(total[Row.SAVED_NS]) / 1e9,
            notes=self._all_notes(),
        )

    def _all_notes(self) -> tuple[str, ...]:
        header, notes = self._header, list(self._notes)
        if header[Header.LIMIT] < header[Header.MAX_BYTES]:
            notes.append(
                f"limit {units.size(header[Header.LIMIT])} of {units.size(header[Header.MAX_BYTES])}: "
                f"not all {header[Header.RANKS]} ranks of this machine have met here"
            )
        if header[Header.PAUSE_REASON] == Pause.PRESSURE:
            notes.append("stopped growing: memory is short")
        if header[Header.PAUSE_REASON] == Pause.REFUSED:
            notes.append("stopped growing: the system gives no more memory")
        return tuple(notes)

    # -- Shared state ----------------------------------------------------------------------------------------

    def _create(self) -> SharedFile:
        """New memory with an empty table."""
        ranks = budget.local_world_size()
        most = budget.memory_budget(self._max_bytes, world=1)
        if table_bytes(self.num_items) > most // ranks // 2:
            raise CacheError(
                f"a cache of {units.size(most // ranks)} for each of {ranks} ranks has no room for samples: "
                f"the table of {self.num_items} samples alone takes {units.size(table_bytes(self.num_items))}",
                hint="give max_bytes a larger value",
            )
        file = SharedFile(rendezvous.FILE_NAME)
        file.reserve(table_bytes(self.num_items))
        Table(file, self.num_items).begin(
            max_bytes=most, ranks=ranks, evicting=POLICIES[self.policy].evicts, fingerprint=self._fingerprint
        )
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
        self._table = Table(file, self.num_items)
        self._header = self._table.header
        self._state = self._table.one["state"]
        self._arena = Arena(file, self._table)
        kind = POLICIES[self.policy]
        self._policy: Policy = kind(self._table, file)
        self._evicts = kind.evicts
        self._space: Space = (Blocks if kind.evicts else Stack)(file, self._table, self._arena)
        self._layouts = Layouts(file, self._table, min(1 << 20, self._header[Header.LIMIT] // 64))
        self._batched: dict[int, Batched | None] = {}
        self._lock = SharedLock(file.descriptor)
        self._window = 0
        self._warned = False
        self._begin_process()

    def _begin_process(self) -> None:
        """What belongs to one process alone: its row and the lock of its counters."""
        self._row_number = -1
        self._row: memoryview = memoryview(b"")
        self._counting = threading.Lock()
        _caches.add(self)

    def _own_row(self) -> int:
        if self._row_number < 0:
            with self._locked():
                if self._row_number < 0:
                    number = self._table.enroll(self.rank)
                    self._row = memoryview(self._table.rows[number])
                    self._row_number = number
        return self._row_number

    def _welcome(self, num_holders: int) -> None:
        header = self._header
        with self._locked():
            ranks = header[Header.RANKS]
            allowed = header[Header.MAX_BYTES] * min(num_holders, ranks) // ranks
            header[Header.LIMIT] = max(header[Header.LIMIT], allowed)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the table. Whoever dies inside leaves it marked, and the next one repairs it."""
        with self._lock:
            if self._header[Header.DIRTY]:
                self._repair()
            self._header[Header.DIRTY] = 1
            yield
            self._header[Header.DIRTY] = 0

    def _repair(self) -> None:
        table = self._table
        half_evicted = np.flatnonzero(table.version & 1)
        table.state[half_evicted] = EMPTY
        table.version[half_evicted] += 1
        table.state[table.dead_claims()] = EMPTY
        self._space.repair()

    def _read(self, index: int) -> Any:
        try:
            return self._read_checked(index) if self._evicts else self._read_kept(index)
        except OSError:
            return MISSING  # this process cannot map it

    def _read_kept(self, index: int) -> Any:
        if self._state[index] != READY:
            return MISSING
        fence()
        one = self._table.one
        offset = one["offset"][index]
        end = offset + one["num_bytes"][index]
        number = one["layout"][index]
        if self.copy:
            of, memory = self._layouts.layout(number, self._arena.bytes(end)[offset:end].copy())
            return layout.read(of, memory, copy=False)
        of, memory = self._layouts.layout(number, self._arena.frozen(end)[offset:end])
        return tree_map(_frozen, layout.read(of, memory, copy=False))

    def _read_checked(self, index: int) -> Any:
        """Copy first, then see whether what was copied was whole."""
        one = self._table.one
        version = one["version"][index]
        if version & 1 or self._state[index] != READY:
            return MISSING
        fence()
        number = one["layout"][index]
        memory = self._space.read(index)
        fence()
        if memory is None or one["version"][index] != version or self._state[index] != READY:
            return MISSING
        of, memory = self._layouts.layout(number, memory)
        return layout.read(of, memory, copy=False)

    def _batched_for(self, number: int) -> Batched | None:
        if number not in self._batched:
            self._batched[number] = plan_batch(self._layouts.by_number(number))
        return self._batched[number]

    def _count(self, index: int, hit: bool) -> None:
        if self._evicts:
            self._policy.used(np.array([index]))
        self._own_row()
        with self._counting:
            if hit:
                self._row[Row.HITS] += 1
                self._row[Row.SAVED_NS] += int(self._table.one["cost_s"][index] * 1e9)
            else:
                self._row[Row.MISSES] += 1

    def _count_many(self, indices: NDArray[np.int64]) -> None:
        self._own_row()
        saved = int(self._table.cost_s[indices].sum(dtype=np.float64) * 1e9)
        with self._counting:
            self._row[Row.HITS] += len(indices)
            self._row[Row.SAVED_NS] += saved

    def _warn_unstorable(self, index: int, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"sample {index} is not cached: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=4
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> SampleCache:
        return self

    def __getstate__(self) -> dict[str, Any]:
        names = ("num_items", "policy", "copy", "rank", "_fingerprint", "_max_bytes", "_notes", "_file")
        session = getattr(self._policy, "session", None)
        return {**{name: getattr(self, name) for name in names}, "session": session}

    def __setstate__(self, state: dict[str, Any]) -> None:
        session = state.pop("session")
        self.__dict__.update(state)
        self._attach(self._file)
        if isinstance(self._policy, Clairvoyant):
            self._policy.session = session


_caches: weakref.WeakSet[SampleCache] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for cache in list(_caches):
        cache._begin_process()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _leave(pid: int, key: str, descriptor: int) -> None:
    if os.getpid() == pid:
        rendezvous.leave(key, descriptor)


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype)


def _frozen(leaf: Any) -> Any:
    if type(leaf) is np.ndarray:
        leaf.flags.writeable = False
    return leaf


def _parts(encoded: layout.Encoded) -> tuple[list[NDArray[np.uint8]], int]:
    """The bytes of a sample in order, gaps filled, and how many there are."""
    parts: list[NDArray[np.uint8]] = []
    for payload in encoded.payloads:
        parts.append(payload)
        if gap := -payload.size % layout.ALIGNMENT:
            parts.append(_PADDING[:gap])
    return parts, encoded.layout.num_bytes


def leaf_names(of: layout.Layout) -> list[str]:
    """How one would write the leaves of a layout."""
    return paths(of.structure)
