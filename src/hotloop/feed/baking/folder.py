"""The folder a bake grows in: who may write there, what is surely on disk, how it takes its final name."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hotloop import units
from hotloop.feed.baking.manifest import Manifest
from hotloop.feed.errors import BakeError

#: In the folder while it is being built: the manifest so far, and the lock of whoever builds.
JOB = "job.json"
LOCK = "lock"
#: Also there while building: what each finished part leaves.
NOTES = "done"

#: Left free beside the bake: for manifests, checksums and whatever else the disk is used for.
SPARE_BYTES = 1 << 20


def partial(out: Path) -> Path:
    """Where the bake for ``out`` is built."""
    return out.with_name(out.name + ".partial")


@contextmanager
def building(out: Path, *, on_wait: Callable[[], None]) -> Iterator[Path]:
    """The folder to build ``out`` in, for this process alone; ``on_wait`` is called if another has it.

    The lock is a ``flock``: it ends with its owner, however that dies. An empty folder is removed again.
    """
    folder = partial(out)
    descriptor = _locked(folder, on_wait)
    try:
        yield folder
    finally:
        _remove_if_empty(folder, descriptor)
        os.close(descriptor)


def _remove_if_empty(folder: Path, descriptor: int) -> None:
    try:
        own = _is_at(folder / LOCK, descriptor)
        if own and {path.name for path in folder.iterdir()} <= {LOCK}:
            (folder / LOCK).unlink()
            folder.rmdir()
    except OSError:  # another has begun in it
        pass


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(path: Path, on_wait: Callable[[], None]) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _locked(folder: Path, on_wait: Callable[[], None]) -> int:
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = _lock(folder / LOCK, on_wait)
        except FileNotFoundError:  # published by another just now
            continue
        except OSError as error:
            raise BakeError(f"cannot write to {folder}, or lock files there: {error.strerror}") from error
        if _is_at(folder / LOCK, descriptor):
            return descriptor
        os.close(descriptor)  # what was locked has been published or removed: begin again


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all, even after a power cut."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def allocate(folder: Path, manifest: Manifest, record_bytes: float) -> None:
    """Make all dense files, of holes; ``record_bytes`` is what the records may come to.

    Raises:
        BakeError: the disk has not that much left; nothing of what was finished is lost.
    """
    sizes = {folder / t.file: t.row_bytes * manifest.num_samples for t in manifest.tables()}
    (folder / "columns").mkdir(exist_ok=True)
    (folder / "records").mkdir(exist_ok=True)
    held = sum(
        path.stat().st_blocks * 512 for path in (*sizes, *(folder / "records").iterdir()) if path.exists()
    )
    needed = sum(sizes.values()) + int(record_bytes) + SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if needed - held > free:
        raise no_space(
            folder, f"the bake needs {units.size(needed - held)} more, {units.size(free)} are free"
        )
    for path, num_bytes in sizes.items():
        with path.open("ab") as stream:
            stream.truncate(num_bytes)
    sync_folder(folder / "columns")


def no_space(folder: Path, words: str) -> BakeError:
    """The error for a full disk: what is finished stays."""
    return BakeError(
        f"not enough space for {folder}: {words}",
        hint="make room and run the same bake again: what is finished is kept",
    )


def publish(folder: Path, out: Path) -> None:
    """Give the finished bake its name, and remove one that had it. The job's note goes last."""
    aside = out.with_name(f"{out.name}.replaced.{os.getpid()}")
    if out.exists():
        out.rename(aside)
    folder.rename(out)
    sync_folder(out.parent)
    shutil.rmtree(aside, ignore_errors=True)
    _clear(out)


def tidy(folder: Path, out: Path) -> None:
    """Finish what a killed publication left: the old bake beside, its builder's notes in ``out``."""
    if not (folder / JOB).exists():
        empty(folder)
    for aside in sorted(out.parent.glob(f"{glob.escape(out.name)}.replaced.*")):
        if out.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(out)
    if (out / JOB).exists():
        _clear(out)


def empty(folder: Path) -> None:
    """Remove everything but the locks."""
    for path in folder.iterdir():
        if path.name == LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _clear(out: Path) -> None:
    shutil.rmtree(out / NOTES, ignore_errors=True)
    for name in (LOCK, JOB):
        (out / name).unlink(missing_ok=True)
    sync_folder(out)
