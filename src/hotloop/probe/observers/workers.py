"""Making batches: the dataset fetchers, in DataLoader workers and in the main process.

torch calls one method per batch. Where its body is the one known below, it is repeated with a clock between
the samples; any other body runs as it is and only the batch is timed.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from collections.abc import Callable
from functools import partial, update_wrapper
from types import CodeType, TracebackType
from typing import Any, Final

from hotloop import fast
from hotloop.clock import now_ns
from hotloop.hooks.wrapping import same_code
from hotloop.probe import batches, draws, sampler
from hotloop.probe.ending import ending
from hotloop.probe.kept import Kept
from hotloop.probe.probe import Probe
from hotloop.record.rows import COLLATE, MAKE, SLOWEST, U32_MAX

#: The batch's bytes are counted for this many batches of a process, then for every ``BYTES_EVERY``-th.
BYTES_FIRST: Final = 8
BYTES_EVERY: Final = 16
STAT_EVERY_NS: Final = 1_000_000_000
#: Samples cheaper than this are timed only now and then: the clock would cost more than 1 % of them.
WORTH_A_CLOCK_NS: Final = 20_000
#: In the main process as many batches go by unobserved, up to ``MOST_SKIPPED``, as make observing one
#: (some 60 us on a cold cache) cost 0.4 % of them (ns). Of those the bytes are counted in every other look.
WORTH_OBSERVING_NS: Final = 16_000_000
LOOKS_PER_COUNT: Final = 2
#: One look in an odd number of batches: of two loaders in turn both are seen, and the one with the dearer
#: batches says how many of both go by.
MOST_SKIPPED: Final = BYTES_EVERY - 2
#: After each so many batches that many more go by, up to four times as many: thirty looks told the parts.
WELL_KNOWN: Final = 256
#: The bodies of torch 2.6-2.13. Compared as bytecode of this interpreter, so formatting and annotations do
#: not count.
KNOWN_BODIES: Final = """
class _MapDatasetFetcher:
    def fetch(self, possibly_batched_index):
        if self.auto_collation:
            if hasattr(self.dataset, "__getitems__") and self.dataset.__getitems__:
                data = self.dataset.__getitems__(possibly_batched_index)
            else:
                data = [self.dataset[idx] for idx in possibly_batched_index]
        else:
            data = self.dataset[possibly_batched_index]
        return self.collate_fn(data)


class _IterableDatasetFetcher:
    def fetch(self, possibly_batched_index):
        if self.ended:
            raise StopIteration

        if self.auto_collation:
            data = []
            for _ in possibly_batched_index:
                try:
                    data.append(next(self.dataset_iter))
                except StopIteration:
                    self.ended = True
                    break
            if len(data) == 0 or (self.drop_last and len(data) < len(possibly_batched_index)):
                raise StopIteration
        else:
            data = next(self.dataset_iter)
        return self.collate_fn(data)
"""

Fetch = Callable[[Any, Any], Any]


class Maker:
    """The batches this process makes: their rows, and the worker's own statistics.

    The code of every batch is kept short: it runs on a cold cache between two steps.
    """

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._row = probe.writer.row
        self._fresh = True  # this process has made no batch yet
        self._thread = 0
        self._worker = 0  # worker id + 1; 0: this is no worker
        self._count = 0
        self._took = 0  # ns, the batch that was looked at last
        self._next_stat = 0
        self._busy = False
        self._counts = probe.count
        self._measure_at = 0  # the count from which bytes are counted
        #: Whether each sample of the next batch is timed: always, unless the clock would be what is measured.
        self.watches = True
        guard = probe.hooks.guard
        self._enter = guard("workers", self._enter_process)
        self._left = guard("workers", self._worker_left)
        kept = Kept(probe)
        self._look = guard("kept", kept.look)
        probe.on_fork("kept", kept.restart)
        self.emit = guard("workers", self._emit)
        self._switch = probe.hooks.switch("workers")

    def wrap(self, original: Fetch, timed: Callable[[Maker, Any, Any], Any] | None) -> Fetch:
        """The fetch method that is put in place of ``original``."""
        body = timed or (lambda maker, fetcher, index: maker.whole(original, fetcher, index))
        if os.environ.get("HOTLOOP_DRAWS"):
            body = draws.watched(self._probe, body)
        switch, owner, count = self._switch, self._switch.owner, self._counts

        def fetch(self_: Any, possibly_batched_index: Any) -> Any:
            if self._fresh:
                self._enter()
            if count.skip:  # cheap batches of the main process: the fetch around each says all but its parts
                count.skip -= 1
                return original(self_, possibly_batched_index)
            if self._busy or switch.off or get_ident() != (self._thread or owner[0]):
                return original(self_, possibly_batched_index)
            self._busy = True
            if self._worker:
                sampler.pause(False)
            try:
                return body(self, self_, possibly_batched_index)
            except BaseException as error:  # the script's own: its traceback looks as it would without us
                error.__traceback__ = _theirs(error.__traceback__)
                raise
            finally:
                self._busy = False
                if self._worker:
                    self._left(self_)

        update_wrapper(fetch, original)
        return ending(self._probe, "workers", "fetch", MAKE, fetch, original=original) or fetch

    def renew(self) -> None:
        """In a forked child: what it is shows at its first batch."""
        self._fresh = True
        self._busy = False
        self._counts.skip = 0

    def _worker_left(self, fetcher: Any) -> None:
        """The worker's batch is out, or its making failed."""
        sampler.pause(True)
        if now_ns() >= self._next_stat:
            self.stat()
            self._look(fetcher.dataset)
            self._probe.made(self._count)

    def whole(self, original: Fetch, fetcher: Any, index: Any) -> Any:
        """Time an unknown fetch body from outside."""
        start = now_ns()
        data = original(fetcher, index)
        self.emit(start, data, _length(index))
        return data

    def _emit(
        self,
        start: int,
        data: Any,
        samples: int,
        collate: int = 0,
        slowest: tuple[int, int, Any] | None = None,
    ) -> None:
        """Write one batch's rows. ``collate``: its begin, 0 unknown; ``slowest``: start, duration, index."""
        end = now_ns()
        row, worker = self._row, self._worker
        self._count += 1
        if slowest is not None:
            known = isinstance(slowest[2], int) and 0 <= slowest[2] < U32_MAX
            row(SLOWEST, *slowest[:2], slowest[2] if known else U32_MAX, 0, worker)
        if collate:
            row(COLLATE, collate, end - collate, 0, 0, worker)
        measured = self._count >= self._measure_at
        num_bytes = min(batches.num_bytes(data), U32_MAX) if measured else 0
        row(MAKE, start, end - start, num_bytes, 0, worker, samples)
        skip = 0
        if not worker and self._count > BYTES_FIRST:
            took = max(end - start, self._took) + 1
            less = 1 + min(3, self._count // WELL_KNOWN)
            skip = min(less * MOST_SKIPPED, less * WORTH_OBSERVING_NS // took) & ~1
            self._counts.skip = skip
        self._took = end - start
        if measured and self._count >= BYTES_FIRST:
            self._measure_at = self._count + max(BYTES_EVERY, LOOKS_PER_COUNT * (skip + 1))
        self._count += skip
        self.watches = measured or (collate or end) - start >= WORTH_A_CLOCK_NS * samples

    def stat(self) -> None:
        """Write what this worker has used so far."""
        self._next_stat = now_ns() + STAT_EVERY_NS
        if self._worker and not self._fresh:
            self._probe.note("worker_stat", worker=self._worker - 1, **usage())
            self._probe.write_sources()  # a worker that is terminated has no end

    def _enter_process(self) -> None:
        self._fresh, self._count, self._measure_at, self.watches = False, 0, 0, True
        info = sys.modules["torch"].utils.data.get_worker_info()
        self._worker = 0 if info is None else int(info.id) + 1
        self._thread = 0 if info is None else get_ident()  # 0: whichever thread is recorded
        if info is None:
            return
        probe = self._probe
        probe.become_worker(worker=int(info.id), num_workers=int(info.num_workers))
        self._next_stat = now_ns() + STAT_EVERY_NS
        sampler.start(probe)


def install(probe: Probe) -> None:
    """Patch both fetchers."""
    module = sys.modules.get("torch.utils.data._utils.fetch")
    if module is None:
        import torch.utils.data._utils.fetch as module  # type: ignore[no-redef]
    maker = Maker(probe)
    probe.on_exit("workers", maker.stat)
    probe.on_fork("workers", maker.renew)
    known = _known_code()
    for name, timed in (("_MapDatasetFetcher", _timed_map), ("_IterableDatasetFetcher", _timed_iterable)):
        owner = getattr(module, name)
        body = timed if same_code(owner.fetch.__code__, known[name]) else None
        probe.hooks.patch(owner, "fetch", partial(maker.wrap, timed=body))


def _theirs(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the first frame that is not of this package on."""
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith("hotloop.probe."):
        trace = trace.tb_next
    return trace


def _timed_map(maker: Maker, fetcher: Any, index: Any) -> Any:
    start = now_ns()
    slowest = None
    if fetcher.auto_collation:
        if hasattr(fetcher.dataset, "__getitems__") and fetcher.dataset.__getitems__:
            data = fetcher.dataset.__getitems__(index)
        elif not maker.watches:
            dataset = fetcher.dataset
            data = [dataset[idx] for idx in index]
        else:
            data, slowest = _making(fetcher.dataset, index)
    else:
        data = fetcher.dataset[index]
    collate = now_ns()
    batch = fetcher.collate_fn(data)
    maker.emit(start, batch, _length(index), collate, slowest)
    return batch


def _samples(dataset: Any, index: Any) -> tuple[list[Any], tuple[int, int, Any] | None]:
    """The samples, and the slowest of several. ``_hooks.c`` has the same, compiled."""
    data: list[Any] = []
    longest = longest_at = -1
    longest_index = None
    before = now_ns()
    for idx in index:
        data.append(dataset[idx])
        after = now_ns()
        if after - before > longest:
            longest, longest_at, longest_index = after - before, before, idx
        before = after
    return data, (longest_at, longest, longest_index) if len(data) > 1 else None


_making = fast.making or _samples


def _timed_iterable(maker: Maker, fetcher: Any, index: Any) -> Any:
    if fetcher.ended:
        raise StopIteration
    start = now_ns()
    if fetcher.auto_collation:
        data = []
        for _ in index:
            try:
                data.append(next(fetcher.dataset_iter))
            except StopIteration:
                fetcher.ended = True
                break
        if len(data) == 0 or (fetcher.drop_last and len(data) < len(index)):
            raise StopIteration
        samples = len(data)
    else:
        data = next(fetcher.dataset_iter)
        samples = 1
    collate = now_ns()
    batch = fetcher.collate_fn(data)
    maker.emit(start, batch, samples, collate)
    return batch


def usage() -> dict[str, float]:
    """What this process has used since it began: CPU seconds, bytes read, page faults, disk waits."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    found = {
        "cpu_s": used.ru_utime + used.ru_stime,
        "minor_faults": used.ru_minflt,
        "major_faults": used.ru_majflt,
        "read_bytes": 0,
        "rchar": 0,
        "io_wait_s": 0.0,
    }
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            for line in file:
                name, _, value = line.partition(": ")
                if name in ("read_bytes", "rchar"):
                    found[name] = int(value)
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            after_name = file.read().rpartition(")")[2].split()
        found["io_wait_s"] = int(after_name[39]) / os.sysconf("SC_CLK_TCK")  # field 42: delayacct_blkio_ticks
    except (OSError, ValueError, IndexError):
        pass  # no /proc, or not allowed to look: zeros
    return found


def _known_code() -> dict[str, CodeType]:
    found: dict[str, Any] = {}
    exec(compile(KNOWN_BODIES, "<hotloop>", "exec"), found)  # nosec B102
    return {name: found[name].fetch.__code__ for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher")}


def _length(index: Any) -> int:
    """How many samples a fetcher was asked for."""
    try:
        return len(index)
    except TypeError:  # batch_size=None: one index
        return 1
