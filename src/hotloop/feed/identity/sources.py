"""The files that a dataset's samples come from, by size and time of change."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hotloop.feed.identity.sourcecode import digest

#: Files up to this number are listed one by one, more by folder.
_SHOWN_FILES = 256
#: A folder that holds all files of one of these is a bake, finished or not: made of a source, itself none.
_BAKES = (frozenset({"manifest.json", "checksums.bin"}), frozenset({"job.json", "lock"}))


def source_files(paths: Iterable[str], beside: Path | None) -> dict[str, str]:
    """Size and time of the files of these names and in these folders; of many, folder by folder."""
    own = [] if beside is None else [str(beside), f"{beside}.partial"]
    files: dict[str, tuple[int, int]] = {}
    for path in paths:
        for file in _files(path):
            if not any(file == o or file.startswith((o + os.sep, o + ".replaced.")) for o in own):
                files[file] = _size_and_time(file)
    if len(files) <= _SHOWN_FILES:
        return {name: _told([(name, stat)]) for name, stat in sorted(files.items())}
    folders: dict[str, list[tuple[str, tuple[int, int]]]] = {}
    for name, stat in sorted(files.items()):
        folders.setdefault(os.path.dirname(name) + os.sep, []).append((name, stat))  # noqa: PTH120
    return {folder: f"{_told(inside)}, {digest(repr(inside).encode())}" for folder, inside in folders.items()}


def is_general(path: str) -> bool:
    """Whether a path is a folder in which much else goes on, or no file at all (a device, a pipe)."""
    if not Path(path).is_dir():
        return not Path(path).is_file()
    holds = (
        Path.cwd(),
        Path(os.path.expanduser("~")),  # noqa: PTH111 - stays a tilde where there is no home
        Path(tempfile.gettempdir()),
        Path(sys.prefix),
        Path("/dev"),
        Path("/proc"),
    )
    inside = Path(path).resolve()
    return any(place.is_relative_to(inside) for place in holds)


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        if folder != path and any(bake.issubset(names) for bake in _BAKES):
            folders.clear()
            continue
        for name in names:
            yield os.path.join(folder, name)  # noqa: PTH118 - a million of them


def _size_and_time(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return -1, 0
    return found.st_size, found.st_mtime_ns


def _told(files: Sequence[tuple[str, tuple[int, int]]]) -> str:
    if any(size < 0 for _, (size, _) in files):
        return "missing"
    total = sum(size for _, (size, _) in files)
    name, (_, mtime) = max(files, key=lambda file: file[1][1])
    when = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(mtime // 10**9))}.{mtime % 10**9:09} UTC"
    if len(files) == 1:
        return f"{total} bytes, modified {when}"
    return f"{len(files)} files, {total} bytes, newest {Path(name).name} of {when}"
