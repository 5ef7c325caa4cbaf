"""Processes that a run leaves behind: a run whose writes are thrown away, and a trial, leave none.

Linux hands a process whose parent has ended to the nearest ancestor that asked for it
(``PR_SET_CHILD_SUBREAPER``), here hotloop: a daemon stays below it, whatever it forks. A namespace of
processes would do as well, and give every process another pid than samples and raw files name it by.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from time import monotonic, sleep
from types import TracebackType
from typing import Final, Self

from hotloop.launch.guard import end
from hotloop.launch.processes import children

_PR_SET_CHILD_SUBREAPER: Final = 36
#: What cleans up after the command, such as multiprocessing's resource tracker, may take so long; killed
#: processes have gone within the second.
_GRACE_S: Final = 1.0
_GONE_WITHIN_S: Final = 5.0


class Orphans:
    """Inside of its ``with`` hotloop is the parent of whatever loses its own, on Linux."""

    def __enter__(self) -> Self:
        self._ours = {*children(os.getpid())}
        self._adopts = sys.platform == "linux" and not _adopt(1)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._adopts:
            _adopt(0)

    def left(self, ours: Iterable[int]) -> list[int]:
        """The adopted that live; of those that ended nothing stays. ``ours``: children of hotloop itself."""
        if not self._adopts:
            return []
        found = [pid for pid in children(os.getpid()) if pid not in self._ours and pid not in ours]
        return [pid for pid in found if not _ended(pid)]

    def end(self, ours: Iterable[int]) -> None:
        """End them and all below them, those last that end by themselves."""
        begin = monotonic()
        while (left := self.left(ours)) and monotonic() - begin < _GONE_WITHIN_S:
            for pid in left if monotonic() - begin > _GRACE_S else ():
                end(pid)
            sleep(0.01)


def _adopt(whether: int) -> int:
    return int(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, whether, 0, 0, 0))


def _ended(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True
