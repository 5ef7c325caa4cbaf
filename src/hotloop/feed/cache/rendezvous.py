"""How ranks and jobs that cache the same samples find each other's memory.

A small file per fingerprint, in a folder that only this user can enter, lists the processes that hold the
cache's memory and under which descriptor. It is read and written under ``flock``. Whoever finds a live
holder opens that descriptor through ``/proc`` and becomes a holder too, so the cache outlives any of them.
Nothing depends on the file's age or on anybody's orderly end: a holder is who runs and still has the memory.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import index
from pathlib import Path
from typing import NamedTuple

from hotloop.feed.cache.table import is_alive, start_ticks
from hotloop.feed.memory import SharedFile

#: The name of the shared file: what a descriptor must lead to before it is opened.
FILE_NAME = "cache"
_LINK = f"/memfd:hotloop-{FILE_NAME}"


class Holder(NamedTuple):
    """A process that has the cache's memory open."""

    pid: int
    start: int
    descriptor: int


class Meeting(NamedTuple):
    """The memory, how many processes hold it now, and why there may be more copies than one."""

    file: SharedFile
    num_holders: int
    note: str


def meet(key: str, create: Callable[[], SharedFile], accept: Callable[[SharedFile], bool]) -> Meeting:
    """The memory of the cache of this key: another process's, or one that ``create`` makes.

    ``accept`` looks into a file that was found and says if it is the one. Both are called under the lock.
    """
    try:
        with _locked(_folder() / f"cache-{key}.json") as descriptor:
            return _meet(descriptor, create, accept)
    except OSError as error:
        return Meeting(create(), 1, f"not shared between ranks: {error}")


def leave(key: str, holder_descriptor: int) -> None:
    """Take this process off the list; the last one removes the file."""
    try:
        path = _folder() / f"cache-{key}.json"
        with _locked(path) as descriptor:
            own = os.getpid(), holder_descriptor
            rest = [other for other in _live(descriptor) if (other.pid, other.descriptor) != own]
            _write(descriptor, rest)
            if not rest:
                path.unlink(missing_ok=True)
    except OSError:
        pass  # a stale entry does no harm


def _meet(descriptor: int, create: Callable[[], SharedFile], accept: Callable[[SharedFile], bool]) -> Meeting:
    live = _live(descriptor)
    file, note = None, ""
    for holder in live:
        try:
            file = _open_of(holder)
        except OSError as error:
            note = f"not shared: process {holder.pid} holds it, and it cannot be opened: {error.strerror}"
            continue
        if file is not None and accept(file):
            note = ""
            break
        file = None
    if file is None:
        file = create()
        live = []  # they hold other memory
    own = Holder(os.getpid(), start_ticks(os.getpid()), file.descriptor)
    _write(descriptor, [*live, own])
    return Meeting(file, len({holder.pid for holder in [*live, own]}), note)


def _open_of(holder: Holder) -> SharedFile | None:
    """The holder's memory, opened anew; None if that descriptor is something else by now."""
    path = f"/proc/{holder.pid}/fd/{holder.descriptor}"
    if not os.readlink(path).startswith(_LINK):  # noqa: PTH115 - a memfd's link is no path
        return None
    return SharedFile.adopt(os.open(path, os.O_RDWR | os.O_CLOEXEC), FILE_NAME)


def _folder() -> Path:
    """This user's own folder for meeting.

    Raises:
        OSError: it cannot be made, or is open to others.
    """
    folder = Path(tempfile.gettempdir()) / f"hotloop-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat(follow_symlinks=False)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(1, "others may write to this folder", str(folder))
    return folder


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file of this name, exclusively; again if somebody removed it while we waited."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _live(descriptor: int) -> list[Holder]:
    """The processes on the list that still run."""
    text = os.pread(descriptor, 1 << 20, 0)
    try:
        noted = [Holder(*map(index, entry)) for entry in json.loads(text or b"[]")]
    except (ValueError, TypeError, RecursionError):
        return []  # a writer died midway: whoever attached lives on, others start anew
    return [holder for holder in noted if is_alive(holder.pid, holder.start)]


def _write(descriptor: int, holders: list[Holder]) -> None:
    text = json.dumps(holders).encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text, 0)
