"""Ends a run that takes too long or too much, before it harms the machine or what comes after it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

import psutil

from hotloop import cgroups
from hotloop.units import duration, size

#: After an interrupt a run has this long to end in an orderly way.
GRACE_S: Final = 10.0
#: What is left to the machine: of its memory, and of the disk that the run writes to.
LEAST_MEMORY_RATIO: Final = 0.08
LEAST_DISK_BYTES: Final = 2 << 30


@dataclass(kw_only=True)
class Guard:
    """``look`` is called once or twice a second while a run goes on; ``why`` says what it was ended for.

    ``stop_s``: seconds after which it is interrupted, as by Ctrl-C, which is no failure (``stopped``), once
    it has taken ``steps`` for half of them.
    ``timeout_s``: seconds after which it is killed. ``most_bytes``: of memory, all its processes together.
    ``disk``: where its writes go; with ``only_disk`` nothing else is looked at.
    """

    timeout_s: float = inf
    stop_s: float | None = None
    most_bytes: float | None = None
    disk: Path | None = None
    only_disk: bool = False
    why: str = ""
    stopped: bool = False
    steps: int = 0
    peak_bytes: float = 0.0
    _begun_s: float = 0.0
    _stepping_s: float = inf  # after it began
    _interrupted_s: float = 0.0

    def look(self, pid: int) -> None:
        """End the run under this process where it has to be."""
        now = monotonic()
        if self.only_disk:
            if not self.why and (why := self._filled()):
                self.why = why
                end(pid)
            return
        if not self._begun_s:
            self._begun_s = now
            with contextlib.suppress(OSError):  # if the kernel has to end something, then this
                Path(f"/proc/{pid}/oom_score_adj").write_text("800")
        spent_s = now - self._begun_s
        if self.steps:
            self._stepping_s = min(self._stepping_s, spent_s)
        if self.stop_s is not None and spent_s > self._stops_s(self.stop_s) and not self.stopped:
            self.stopped, self._interrupted_s = True, now
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        if self.stopped and now - self._interrupted_s > GRACE_S:
            end(pid)
        elif not self.stopped and not self.why and (why := self._too_much(pid, spent_s)):
            self.why = why
            end(pid)

    def _stops_s(self, stop_s: float) -> float:
        """When it is interrupted, in time to end in an orderly way; never before its first step."""
        shown_s = max(stop_s, self._stepping_s + stop_s / 2)
        return shown_s if shown_s == inf else min(shown_s, max(self._stepping_s, self.timeout_s - GRACE_S))

    def _too_much(self, pid: int, spent_s: float) -> str:
        used = memory_of(pid)
        self.peak_bytes = max(self.peak_bytes, used)
        if spent_s > self.timeout_s:
            return f"was not done after {duration(self.timeout_s)}"
        if self.most_bytes is not None and used > self.most_bytes:
            return f"used {size(used)} of memory, the limit is {size(self.most_bytes)}"
        free, total = free_memory()
        if free < LEAST_MEMORY_RATIO * total:
            return f"used {size(used)} of memory and left {size(free)} to the machine"
        return self._filled()

    def _filled(self) -> str:
        if self.disk is None or shutil.disk_usage(self.disk).free >= LEAST_DISK_BYTES:
            return ""
        return (
            f"wrote until the disk of {self.disk} was nearly full, where hotloop keeps what it throws away "
            "(TMPDIR can name another)"
        )


def end(pid: int) -> None:
    """Kill a process and all below it."""
    for one in _family(pid):
        with contextlib.suppress(psutil.Error):
            one.kill()


def memory_of(pid: int) -> float:
    """Bytes that a process and all below it hold, pages that they share counted once (about)."""
    private = shared = 0.0
    for one in _family(pid):
        with contextlib.suppress(psutil.Error):
            held = one.memory_info()
            both = float(getattr(held, "shared", 0))
            private, shared = private + held.rss - both, max(shared, both)
    return private + shared


def _family(pid: int) -> list[psutil.Process]:
    """A process and all below it; empty where it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def free_memory() -> tuple[float, float]:
    """Bytes of memory that are left to this process and that there are, its cgroup's limit kept."""
    memory = psutil.virtual_memory()
    free, total = float(memory.available), float(memory.total)
    limit, used = cgroups.memory() or (total, total - free)
    return min(free, limit - used), min(total, limit)
