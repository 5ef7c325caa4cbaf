"""Memory as the process sees it, and garbage collections that pause it."""

from __future__ import annotations

import gc
import os
from typing import Any, Final

from hotloop.probe.ending import ending
from hotloop.probe.probe import Probe
from hotloop.record.rows import GC

NAME: Final = "observers.memory"
#: Shorter collections of the young generations are too many and too small to count.
_WORTH_A_ROW_NS: Final = 200_000
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def note_memory(probe: Probe, *, last: bool = False) -> None:
    """Write a ``memory`` note, the ``last`` with the peak. The device is asked only once the script has used
    it.
    """
    fields: dict[str, Any] = {"host_rss": resident_bytes()}
    if last:
        fields.update(status_bytes("VmHWM"))
    cuda = probe.torch.cuda
    if cuda.is_initialized():
        stats = cuda.memory_stats_as_nested_dict()
        allocated = stats.get("allocated_bytes", {}).get("all", {})
        fields.update(
            device_allocated=allocated.get("current", 0),
            device_reserved=stats.get("reserved_bytes", {}).get("all", {}).get("current", 0),
            device_peak=allocated.get("peak", 0),
            alloc_retries=stats.get("num_alloc_retries", 0),
        )
    probe.note("memory", **fields)


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read().split()[1]) * _PAGE
    except OSError:
        return 0


def status_bytes(*names: str) -> dict[str, int]:
    """Lines of ``/proc/self/status`` that give sizes, in bytes; empty where the system has no such file."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            lines = [line.split() for line in stream]
    except OSError:
        return {}
    return {line[0][:-1]: int(line[1]) * 1024 for line in lines if line[0][:-1] in names and len(line) > 1}


def install(probe: Probe) -> None:
    """Observe garbage collections, and memory at the start, at ticks and at the end."""
    if not probe.asleep:
        note_memory(probe)
    # Compiled or none: ``gc`` drops what a script's signal handler raises in a callback in Python.
    collections = ending(probe, NAME, "collected", GC, _WORTH_A_ROW_NS)
    if collections is not None:
        gc.callbacks.append(collections)
        probe.hooks.at_undo(lambda: gc.callbacks.remove(collections))
    probe.on_tick(NAME, lambda: note_memory(probe))
    probe.on_exit(NAME, lambda: note_memory(probe, last=True))
