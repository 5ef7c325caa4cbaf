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
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hotloop.feed.identity.ingredients import Ingredients
from hotloop.feed.identity.sources import is_general, source_files


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
