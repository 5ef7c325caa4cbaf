"""One LMDB file as a process may use it: opened once, never across a fork, closed before one.

LMDB allows one opening per process and file, and a child that closes what it inherited frees its parent's
place among the readers. So the file is closed before every fork and opened again on both
sides when next used.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hotloop.feed.errors import CacheError

MAX_READERS = 1024


def import_lmdb() -> Any:
    """The module.

    Raises:
        CacheError: it is not installed.
    """
    try:
        import lmdb
    except ImportError as error:
        raise CacheError("a disk tier needs lmdb", hint="pip install 'hotloop[lmdb]'") from error
    return lmdb


class LmdbFile:
    """A folder's file, ``max_bytes`` long at most, shared by everybody in this process who asks for it.

    Commits write new pages before the page that names them: a killed process damages nothing. ``writemap``
    stays off: with it a full disk is a SIGBUS.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self._changed = threading.Condition()
        self._num_users = 0
        self._handle: Any = None

    @classmethod
    def at(cls, folder: Path, max_bytes: int) -> LmdbFile:
        """The one for this folder."""
        with _registry_lock:
            key = str(folder.resolve())
            file = _files.get(key)
            if file is None:
                file = _files[key] = cls(folder, max_bytes)
            return file

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[Any]:
        """A transaction whose values are views, valid inside.

        Raises:
            lmdb.Error: no room, no place among the readers, a damaged file.
        """
        with self._used() as handle, handle.begin(write=write, buffers=True) as transaction:
            yield transaction

    def last_transaction(self) -> int:
        """The number of the last commit."""
        with self._used() as handle:
            return int(handle.info()["last_txnid"])

    def sync(self) -> None:
        """Force what was committed to the disk."""
        with self._used() as handle:
            handle.sync(True)

    def close(self) -> None:
        """Close it until it is next used; waits for transactions to end."""
        with self._changed:
            self._close()

    @contextmanager
    def _used(self) -> Iterator[Any]:
        with self._changed:
            if self._handle is None:
                self._handle = self._open()
            self._num_users += 1
            handle = self._handle
        try:
            yield handle
        finally:
            with self._changed:
                self._num_users -= 1
                self._changed.notify_all()

    def _open(self) -> Any:
        handle = import_lmdb().open(
            str(self.folder),
            map_size=self.max_bytes,
            max_readers=MAX_READERS,
            writemap=False,
            metasync=False,
            sync=False,
            max_spare_txns=4,
        )
        # What killed processes were reading would keep old pages from being used again.
        handle.reader_check()
        return handle

    def _close(self) -> None:
        while self._num_users:
            self._changed.wait()
        if self._handle is not None:
            self._handle.close()
            self._handle = None

    def before_fork(self) -> None:
        """Closed, and nobody may open it until the fork is done."""
        self._changed.acquire()
        self._close()

    def after_fork_in_parent(self) -> None:
        """Usable again."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Usable again, whatever other threads of the parent were waiting for."""
        self._changed = threading.Condition()
        self._num_users = 0


_registry_lock = threading.Lock()
_files: weakref.WeakValueDictionary[str, LmdbFile] = weakref.WeakValueDictionary()
_held: list[LmdbFile] = []


def _before_fork() -> None:
    _registry_lock.acquire()
    _held.extend(_files.values())
    for file in _held:
        file.before_fork()


def _after_fork_in_parent() -> None:
    for file in _held:
        file.after_fork_in_parent()
    _held.clear()
    _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for file in _held:
        file.after_fork_in_child()
    _held.clear()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
