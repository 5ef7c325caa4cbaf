"""Checkpoints written in the background: the state is copied, training goes on, a thread writes the file.

``torch.save`` pickles into a zip writer of torch's. :class:`Deferred` stands in for that writer: it keeps the
records, with a copy of every storage, and gives them to the real one in a thread. The file is therefore, byte
for byte, the one that ``torch.save`` writes. It takes its name when it is complete, so a run that is killed
leaves the one before.
"""

from __future__ import annotations

import functools
import os
import pickle
import shutil
import stat
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import torch

from hotloop.feed.budget import headroom_bytes, usable_memory_bytes

#: Opens torch's zip writer for a path.
Opener = Callable[[str], Any]

_OPEN: Final[Opener] = torch.serialization._open_zipfile_writer

#: Audit events of what may come upon a file that is not complete yet, by the paths they tell; of programs
#: nobody knows what they read.
_TOUCHING: Final = {
    "open", "os.rename", "os.remove", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.listdir", "os.scandir", "shutil.copyfile", "shutil.copytree", "shutil.move",
    "shutil.rmtree", "shutil.make_archive",
}  # fmt: skip
_PROGRAMS: Final = {"os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen"}


def async_save(
    obj: Any, f: str | os.PathLike[str] | IO[bytes], pickle_module: Any = pickle, pickle_protocol: int = 2
) -> None:
    """Like ``torch.save``; to a path it returns when the state is copied, and a thread writes the file.

    ``f`` appears, or is replaced, when it is complete. One file is written and one more waits at a time; a
    newer state for the same path takes the place of one that waits. Who in this process then asks for the
    file (opens, renames, copies it, lists its folder, looks whether it exists, starts a program) waits until
    it is complete, and so does the end of the process; ``os._exit`` does not, nor what C code or another
    process does. Where ``torch.distributed`` has several ranks, which would read too early, where the memory
    has no room for a copy, or ``f`` is no regular file, the state is written before this returns.

    Raises:
        OSError, RuntimeError: what ``torch.save`` raises; also for the state before, which could not be
            written.
    """
    if not isinstance(f, str | os.PathLike):
        torch.save(obj, f, pickle_module, pickle_protocol)
        return
    with Deferred(os.fspath(f), _OPEN) as zip_file:
        torch.serialization._save(obj, zip_file, pickle_module, pickle_protocol, False)


def wait_for_saves() -> None:
    """Until every file of ``async_save`` is complete. Raises what kept one from being written."""
    _WRITER.wait()
    _WRITER.check()


class Deferred:
    """Stands in for torch's zip writer of one file; a context manager, as that is.

    ``opener`` gives the real one. Without room for a copy, or where ``path`` cannot be replaced by a new file
    (devices, pipes, folders without the permission), it writes at once.
    """

    def __init__(self, path: str, opener: Opener) -> None:
        _WRITER.check()
        self._path, self._opener = path, opener
        self._records: list[tuple[Any, ...]] = []
        self._room = _room() if _replaceable(path) and not several_ranks() else 0
        self._real: Any = None  # the context manager of torch's writer, and what it gave
        self._zip: Any = None

    def __enter__(self) -> Deferred:
        if not self._room:
            self._write_at_once()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._real is not None:
            self._real.__exit__(kind, error, trace)
        elif error is None:
            _WRITER.put(_File(self._path, self._opener, self._records))

    def write_record(self, name: str, data: Any, num_bytes: int) -> None:
        """Keep a record; a storage is copied."""
        if self._zip is None and num_bytes > self._room:
            self._write_at_once()
        if self._zip is not None:
            self._zip.write_record(name, data, num_bytes)
            return
        try:
            kept = data.clone() if isinstance(data, torch.UntypedStorage) else data
        except (MemoryError, RuntimeError):  # somebody else took the memory
            self._write_at_once().write_record(name, data, num_bytes)
            return
        self._room -= num_bytes
        self._records.append((name, kept, num_bytes))

    def __getattr__(self, name: str) -> Any:
        """What else torch asks of its writer it gets, of the real one."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._write_at_once(), name)

    def _write_at_once(self) -> Any:
        """Torch's writer, with the records so far in it."""
        if self._real is not None:
            return self._zip
        _WRITER.wait()  # an older state must not replace this one
        self._real = self._opener(self._path)
        self._zip = self._real.__enter__()
        for record in self._records:
            self._zip.write_record(*record)
        self._records = []
        return self._zip


class _File:
    """What is to be written to one path."""

    def __init__(self, path: str, opener: Opener, records: list[tuple[Any, ...]]) -> None:
        self.path = os.path.realpath(path)
        self._name = Path(path)
        self._opener, self._records = opener, records

    def write(self) -> None:
        """Write it aside, and have it take its name. Raises what torch or the system raises."""
        target = Path(self.path)
        # torch names the folder within the archive after the file, up to its last dot.
        aside = target.with_name(f"{self._name.stem}.hotloop-part")
        try:
            with self._opener(str(aside)) as zip_file:
                for record in self._records:
                    zip_file.write_record(*record)
            if target.exists():
                shutil.copymode(target, aside)
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


class _Writer:
    """Writes one file after the other in a thread, which lives as long as there are any."""

    def __init__(self) -> None:
        self._hooked = False
        self.restart()

    def restart(self) -> None:
        """Nothing to write; in a forked child, whose parent does the writing."""
        self._moved = threading.Condition()
        self._current: _File | None = None
        self._waiting: _File | None = None
        self._error: Exception | None = None
        self._ident = 0  # of the thread

    def put(self, file: _File) -> None:
        """Have a file written; waits until no other path waits."""
        if not self._hooked:
            self._hooked = True
            os.register_at_fork(after_in_child=self.restart)
            sys.addaudithook(self._audit)
            self._watch_stat()
        with self._moved:
            self._moved.wait_for(lambda: self._waiting is None or self._waiting.path == file.path)
            if self._current is not None:
                self._waiting = file
                return
            self._current = file
            try:
                threading.Thread(target=self._run, name="hotloop-save").start()
            except RuntimeError:  # the interpreter is about to end
                self._current = None
                file.write()

    def wait(self) -> None:
        """Until everything is written."""
        if self._current is not None and threading.get_ident() != self._ident:
            with self._moved:
                self._moved.wait_for(lambda: self._current is None)

    def check(self) -> None:
        """Raise what kept a file from being written, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        self._ident = threading.get_ident()
        file = self._current
        while file is not None:
            try:
                file.write()
            except Exception as error:
                self._error = error
                _tell(f"{file.path} could not be written: {error}")
            with self._moved:
                self._current, self._waiting = self._waiting, None
                file = self._current
                self._ident = 0 if file is None else self._ident
                self._moved.notify_all()

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if self._current is None or threading.get_ident() == self._ident:
            return
        if event in _PROGRAMS or (event in _TOUCHING and any(map(self._concerns, args))):
            self.wait()

    def _concerns(self, path: Any) -> bool:
        """Whether a path is a file that is to be written, or a folder above it."""
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        real = os.path.realpath(os.fsdecode(path))
        # The one that waits first: it may become the current one meanwhile.
        files = [file.path for file in (self._waiting, self._current) if file is not None]
        return any(file == real or file.startswith(real.rstrip(os.sep) + os.sep) for file in files)

    def _watch_stat(self) -> None:
        """``os.stat``, under ``os.path.exists`` and the like, raises no audit event."""
        original: Any = os.stat

        @functools.wraps(original)
        def waiting_stat(path: Any, *args: Any, **kwargs: Any) -> Any:
            waits = self._current is not None and threading.get_ident() != self._ident
            if waits and self._concerns(path):
                self.wait()
            return original(path, *args, **kwargs)

        for known in (os.supports_follow_symlinks, os.supports_dir_fd, os.supports_fd):
            if original in known:
                known.add(waiting_stat)
        os.stat = waiting_stat


_WRITER: Final = _Writer()


def several_ranks() -> bool:
    """Whether other processes of this job may read what this one writes."""
    distributed = torch.distributed
    ready = distributed.is_available() and distributed.is_initialized()
    return bool(ready and distributed.get_world_size() > 1)


def _tell(words: str) -> None:
    try:
        warnings.warn(words, RuntimeWarning, stacklevel=1)
    except RuntimeWarning:  # warnings are errors here, and this is not the thread to raise one
        print(f"hotloop.feed: {words}", file=sys.stderr)


def _replaceable(path: str) -> bool:
    """Whether a complete file can take the place of what is there."""
    real = os.path.realpath(path)
    try:
        regular = stat.S_ISREG(os.lstat(real).st_mode)
    except OSError:
        regular = True  # not there yet
    return regular and os.access(Path(real).parent, os.W_OK | os.X_OK)


def _room() -> int:
    """Bytes that copies may take: half of what is free beyond the headroom, for a second may wait."""
    return max(0, usable_memory_bytes() - headroom_bytes()) // 2
