"""What a dataset's samples depend on, in names and short words that can be compared and shown.

Four things: the source of the classes and functions (the dataset's own, its transforms', and every function
and constant of the user's modules they refer to), the parameters (what pickle would send to a worker), the
size and modification time of the files the parameters name, and the number of samples. Comments and
layout do not count. Code of installed packages is known by its version and does not make a bake stale.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import linecache
import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hotloop.feed.identity.ingredients import Ingredients
from hotloop.feed.identity.sourcecode import digest


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """``code``, ``parameters`` and ``sources``, each from a name to what it was.

    ``volatile`` names are not compared. ``source`` holds the paths the caller named (None: those found in
    the parameters).
    """

    num_samples: int
    code: Mapping[str, str]
    parameters: Mapping[str, str]
    sources: Mapping[str, str]
    source: tuple[str, ...] | None = None
    volatile: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Fingerprint:
        """The fingerprint whose ``asdict`` was written to a manifest."""
        tuples = {name: tuple(content[name]) for name in ("source", "volatile") if content[name] is not None}
        return cls(**{**content, **tuples})


def take(
    dataset: Any, *, source: Iterable[str | os.PathLike[str]] | None = None, beside: Path | None = None
) -> Fingerprint:
    """The fingerprint of a dataset now.

    ``source`` names the files and folders its samples come from. Without it, every parameter that is the path
    of a file or folder counts, but no folder that holds more than data: one with the working directory, the
    user's home, temporary files or Python in it. Nothing at ``beside`` (the bake itself) is looked at.
    """
    linecache.checkcache()  # the source may have been written since it was last looked at
    found = Ingredients()
    found.visit("dataset", dataset)
    named = None if source is None else tuple(sorted(str(Path(path).resolve()) for path in source))
    paths = (path for path in found.paths if not is_general(path)) if named is None else named
    return Fingerprint(
        num_samples=len(dataset),
        code=found.code,
        parameters=found.parameters,
        sources=source_files(paths, beside),
        source=named,
    )


class Unknowable(Exception):  # noqa: N818 - an answer, not a fault
    """Something cannot be told from another of its kind; the message says where and what."""


def digest_of(*parts: Any, seeds: bool = True) -> bytes:
    """32 bytes that are equal in another process exactly if these objects are; see Ingredients for ``seeds``.

    Raises:
        Unknowable: an object holds state that cannot be read (an open file of another library, say).
    """
    found = Ingredients(seeds=seeds)
    try:
        for position, part in enumerate(parts):
            found.visit(f"dataset({position})" if position else "dataset", part)
    except RecursionError:
        raise Unknowable("it is nested too deeply") from None
    for why in found.unreadable:
        raise Unknowable(why)
    files = source_files((path for path in found.paths if not is_general(path)), None)
    told = [found.code, found.parameters, sorted(found.paths), files]
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=32).digest()


def settled(before: Fingerprint, after: Fingerprint) -> Fingerprint:
    """``before``, with what reading samples changed marked as volatile: such are no parameters."""
    names = before.parameters.keys() | after.parameters.keys()
    moved = sorted(n for n in names if before.parameters.get(n) != after.parameters.get(n))
    # A file that reading made (an index, say) is there from now on.
    return dataclasses.replace(before, volatile=tuple(moved), sources={**after.sources, **before.sources})


def changes(then: Fingerprint, now: Fingerprint) -> list[str]:
    """What is different now, one line each; empty where nothing is."""
    found = []
    if then.num_samples != now.num_samples:
        found.append(f"the dataset had {then.num_samples:,} samples, now {now.num_samples:,}")
    found += _compare("the code of {} changed", "code {} ", _own(then.code), _own(now.code), ())
    volatile = {*then.volatile, *now.volatile}
    found += _compare("{} was {}, now {}", "{} ", then.parameters, now.parameters, volatile)
    found += _compare("{} changed ({}, now {})", "file {} ", then.sources, now.sources, ())
    return found


def _own(code: Mapping[str, str]) -> dict[str, str]:
    return {name: what for name, what in code.items() if what != "installed"}


def _compare(
    changed: str, other: str, then: Mapping[str, str], now: Mapping[str, str], skip: Collection[str]
) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        if any(name == s or name.startswith((f"{s}.", f"{s}[")) for s in skip):
            continue
        if name not in now:
            yield other.format(name) + "is gone"
        elif name not in then:
            yield other.format(name) + "is new"
        elif then[name] != now[name]:
            yield changed.format(name, then[name], now[name])


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
