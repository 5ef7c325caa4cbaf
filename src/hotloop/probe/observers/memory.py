"""Memory as the process sees it, and garbage collections that pause it."""

from __future__ import annotations

import gc
import os
from _thread import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from hotloop.record.rows import GC

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.memory"
#: Shorter collections of the young generations are too many and too small to count.
_WORTH_A_ROW_NS: Final = 200_000
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Collections:
    """A callback of ``gc.callbacks``: a row for each pause of the recorded thread that is worth one."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._start = 0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector before and after each collection."""
        now = perf_counter_ns()
        if phase == "start":
            self._start = now
            return
        probe = self._probe
        start, self._start = self._start, 0
        generation = info.get("generation", 0)
        if not start or get_ident() != probe.hooks.owner[0]:
            return
        if generation == 2 or now - start >= _WORTH_A_ROW_NS:
            probe.emit(GC, start, now - start, generation)


def note_memory(probe: Probe) -> None:
    """Write a ``memory`` note. The device is asked only once the script has used it."""
    fields: dict[str, Any] = {"host_rss": resident_bytes()}
    cuda = probe.torch.cuda
    if cuda.is_initialized():
        stats = cuda.memory_stats()
        fields.update(
            device_allocated=stats.get("allocated_bytes.all.current", 0),
            device_reserved=stats.get("reserved_bytes.all.current", 0),
            device_peak=stats.get("allocated_bytes.all.peak", 0),
            device_inactive_split=stats.get("inactive_split_bytes.all.current", 0),
            alloc_retries=stats.get("num_alloc_retries", 0),
            num_ooms=stats.get("num_ooms", 0),
        )
    probe.note("memory", **fields)


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read().split()[1]) * _PAGE
    except OSError:
        return 0


def install(probe: Probe) -> None:
    """Observe garbage collections, and memory once a second."""
    collections = probe.hooks.guard(NAME, Collections(probe))
    gc.callbacks.append(collections)
    probe.hooks.at_undo(lambda: gc.callbacks.remove(collections))
    probe.on_second(NAME, lambda: note_memory(probe))
    probe.on_exit(NAME, lambda: note_memory(probe))
