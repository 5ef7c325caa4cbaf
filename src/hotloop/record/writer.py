"""The writing half of the raw files. Standard library only; runs in the user's process.

Rows go into a shared mapping of space that was reserved before, so a row costs no system call, survives
SIGKILL, and a full disk is an ``OSError`` here and never a SIGBUS. Any failure switches the writer off and
says so once.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import struct
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from hotloop import fast
from hotloop.record.rows import LONG, ROW, U16_MAX, U32_MAX

#: Rows are reserved in pieces of this many bytes, a multiple of both the row and the page: 252 KiB or, where
#: pages are larger than 4 KiB, 384 KiB or more.
CHUNK: Final = 12288 * 21 if mmap.ALLOCATIONGRANULARITY == 4096 else 6 * mmap.ALLOCATIONGRANULARITY
#: Notes that may wait for the file of a process that has not shown what it is.
_MAX_WAITING: Final = 256

#: ``row(kind, start, dur, value=0, site=0, obj=0, extra=0, flags=0)``
Row = Callable[..., None]

_SIZE: Final = ROW.size
#: As they are now: the script may put its own in their place.
_open, _fstat, _write, _reserve = os.open, os.fstat, os.write, os.posix_fallocate


class Writer:
    """Writes ``PID-STARTNS.rows`` and ``PID-STARTNS.notes`` in a folder; never raises.

    Nothing is created before the first row, or the first note of an ``eager`` writer: a forked child that
    does nothing of interest leaves no file. ``on_open`` runs once per process, just before its first note
    is written.
    """

    def __init__(
        self,
        raw_dir: str,
        pid: int,
        start_ns: int,
        *,
        eager: bool = True,
        on_open: Callable[[], None] | None = None,
    ) -> None:
        #: Append one row (see ``_row_function``).
        self.row, self._map = _row_function(self._roll)
        self._folder = raw_dir
        self._rows_fd = self._notes_fd = -1
        self._files: dict[str, tuple[int, int]] = {}  # suffix -> device and inode
        self.on_open = on_open
        self.restart(pid, start_ns, eager=eager)

    def restart(self, pid: int, start_ns: int, *, eager: bool) -> None:
        """Begin again as another process: after a fork the child must not touch its parent's files."""
        for fd, suffix in ((self._rows_fd, ".rows"), (self._notes_fd, ".notes")):
            if self._is_ours(fd, suffix):
                os.close(fd)
        self.pid = pid
        self._stem = os.path.join(self._folder, f"{pid}-{start_ns}")
        self._map(None)
        self._base = 0  # of the next piece inside the file
        self._rows_fd = -1
        self._notes_fd = -1
        self._files.clear()
        self._waiting: list[tuple[int, str, dict[str, Any]]] = []
        self.eager = eager
        self.opened = False
        self.off = False

    def note(self, kind: str, **fields: Any) -> None:
        """Append one note, stamped now. Values that JSON does not know are written as their ``str``."""
        if self.off:
            return
        now = perf_counter_ns()
        if not self.opened:
            if not self.eager:
                if len(self._waiting) < _MAX_WAITING:
                    self._waiting.append((now, kind, fields))
                return
            self.open()
        self._write_note(now, kind, fields)

    def open(self) -> None:
        """Create the note file now and write what waited for it."""
        if self.opened or self.off:
            return
        self.opened = True
        waiting, self._waiting = self._waiting, []
        if self.on_open is not None:
            self.on_open()
        for at, kind, fields in waiting:
            self._write_note(at, kind, fields)

    def ready(self) -> None:
        """Have a place for rows now: what writes the first one may be unable to make it."""
        if self._base == 0:
            self._roll()

    def close(self) -> None:
        """Give back the reserved space behind the last row. Rows written later are lost."""
        self.off = True
        used = self._base - CHUNK + self._map(None)
        try:
            if self._is_ours(self._rows_fd, ".rows"):
                os.ftruncate(self._rows_fd, max(used, 0))
                os.close(self._rows_fd)
            if self._is_ours(self._notes_fd, ".notes"):
                os.close(self._notes_fd)
        except OSError:
            pass  # the readers ignore zero rows behind the last one
        self._rows_fd = self._notes_fd = -1

    def _roll(self) -> None:
        """Map the next reserved piece of the file."""
        if self.off:
            return
        try:
            self.open()
            if not self._is_ours(self._rows_fd, ".rows"):
                self._rows_fd = self._create(".rows")
            _reserve(self._rows_fd, self._base, CHUNK)
            window = mmap.mmap(self._rows_fd, CHUNK, offset=self._base)
            self._base += CHUNK
            self._map(window)
        except (OSError, ValueError) as error:
            self._switch_off(error)

    def _create(self, suffix: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if suffix == ".notes" else 0)
        fd = _open(self._stem + suffix, flags, 0o644)
        status = _fstat(fd)
        self._files[suffix] = (status.st_dev, status.st_ino)
        return fd

    def _is_ours(self, fd: int, suffix: str) -> bool:
        """Whether a descriptor still is our file: a script that closes them all may have been given its
        number.
        """
        if fd < 0:
            return False
        try:
            status = _fstat(fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._files.get(suffix)

    def _write_note(self, at: int, kind: str, fields: dict[str, Any]) -> None:
        encode = _encode()
        try:
            line = encode({"note": kind, "t": at, **fields})
        except (TypeError, ValueError, RecursionError) as error:  # keys that are no strings, cycles
            line = encode({"note": "warning", "t": at, "text": f"a note of type {kind} was lost: {error}"})
        try:
            if not self._is_ours(self._notes_fd, ".notes"):
                self._notes_fd = self._create(".notes")
            data = line.encode("utf-8", "surrogatepass") + b"\n"
            if _write(self._notes_fd, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._switch_off(error)

    def _switch_off(self, error: Exception) -> None:
        if self.off:
            return
        self.off = True
        self._map(None)
        if not self.eager:
            return  # a forked worker: its parent's disk is the same, and once is enough
        message = f"hotloop: recording of process {self.pid} stops here: {error}. The run goes on.\n"
        try:
            sys.__stderr__.write(message)  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            pass


@functools.cache
def _encode() -> Callable[[Any], str]:
    """``json.dumps`` of notes, made once: every epoch writes one."""
    import json

    return json.JSONEncoder(default=str, separators=(",", ":")).encode


def _row_function(roll: Callable[[], None]) -> tuple[Row, Callable[[mmap.mmap | None], int]]:
    """The function that appends a row, and the one that gives it a new piece to write into.

    A closure, because this is the code that runs most often: its state is two cells. The second function
    returns how many bytes of the old piece were used. ``_fast.c`` has the same, compiled.
    """
    if fast.Rows is not None:
        rows = fast.Rows(roll, _pack_saturated, CHUNK)
        return rows, rows.use
    window: mmap.mmap | None = None
    offset = CHUNK
    rolling = False
    pack_into = ROW.pack_into

    def row(
        kind: int,
        start: int,
        dur: int,
        value: int = 0,
        site: int = 0,
        obj: int = 0,
        extra: int = 0,
        flags: int = 0,
    ) -> None:
        """Append one row; ``start`` and ``dur`` in nanoseconds. Numbers out of range saturate."""
        nonlocal offset, rolling
        # No call lies between reading the offset and moving it on: neither a signal handler nor a thread
        # that writes its own row can get the same place.
        target = window
        place = offset
        offset = place + _SIZE
        if place >= CHUNK or target is None:
            if rolling:  # a signal handler came in between: its row is dropped
                return
            rolling = True  # before the call: signals that are due are handled where a function begins
            try:
                roll()
            finally:
                rolling = False
            target = window
            place = offset
            if target is None or place >= CHUNK:
                return
            offset = place + _SIZE
        try:
            pack_into(target, place, start, dur, value, site, obj, extra, flags, kind)
        except struct.error:
            _pack_saturated(target, place, start, dur, value, site, obj, extra, flags, kind)

    def use(new: mmap.mmap | None) -> int:
        nonlocal window, offset, rolling
        used = min(offset, CHUNK)
        rolling = False  # also in a child that was forked in between
        window = new
        offset = 0 if new is not None else CHUNK
        return used

    return row, use


def _pack_saturated(
    window: mmap.mmap,
    offset: int,
    start: int,
    dur: int,
    value: int,
    site: int,
    obj: int,
    extra: int,
    flags: int,
    kind: int,
) -> None:
    """Write a row whose numbers do not fit as they are."""
    dur = max(int(dur), 0)
    if dur > U32_MAX:
        dur, flags = dur // 1000, flags | LONG
    ROW.pack_into(
        window,
        offset,
        max(int(start), 0),
        min(dur, U32_MAX),
        _limit(value, U32_MAX),
        _limit(site, U16_MAX),
        _limit(obj, U16_MAX),
        _limit(extra, U16_MAX),
        flags & 0xFF,
        kind & 0xFF,
    )


def _limit(value: int, top: int) -> int:
    return min(max(int(value), 0), top)
