"""What a cache of the dataset's own holds in a worker, and how often it hits.

Seen are dictionaries that something in the dataset holds beside two counters, of hits and of misses: without
them nobody can tell. Values are read where they are stored, and nothing of the script's is called.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from hotloop.probe import batches
from hotloop.state.stored import attributes

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Names of the two counters.
_COUNTERS: Final = tuple(
    (f"{before}{hits}", f"{before}{misses}")
    for before in ("", "_", "num_", "cache_", "_cache_")
    for hits, misses in (("hits", "misses"), ("hit", "miss"), ("hit_count", "miss_count"))
)
#: Objects of a dataset that are searched, entries of a cache that are numbered, and notes of a worker.
_MOST_OBJECTS: Final = 200
_MOST_ENTRIES: Final = 4096
_MOST_NOTES: Final = 1000
_PLAIN: Final = (int, str, bytes)


class Kept:
    """Looks at a worker's dataset; one per process."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self.restart()

    def restart(self) -> None:
        """In a forked child: its notes are its own."""
        self._notes = 0
        self._reads = -1
        self._seen: set[int] = set()

    def look(self, dataset: Any) -> None:
        """A ``kept`` note, where a cache was read since the last look."""
        found = next(_caches(dataset), None) if self._notes < _MOST_NOTES else None
        if found is None:
            return
        holder, name, cache, hits, misses = found
        if hits + misses == self._reads:
            return
        self._reads = hits + misses
        self._notes += 1
        numbers = _numbers(cache)
        new = numbers - self._seen
        self._seen |= new
        code = getattr(vars(type(holder)).get("__init__"), "__code__", None)
        self._probe.note(
            "kept",
            dataset=type(dataset).__name__,
            holder=type(holder).__name__,
            name=name,
            place=[self._probe.is_user.path(code.co_filename), code.co_firstlineno] if code else None,
            entries=len(cache),
            bytes_each=batches.num_bytes(next(iter(dict.values(cache)))),
            hits=hits,
            misses=misses,
            new=sorted(new),
        )


def _caches(dataset: Any) -> Iterator[tuple[Any, str, dict[Any, Any], int, int]]:
    """(holder, attribute, cache, hits, misses) of everything the dataset holds that looks like one."""
    ahead, known = [dataset], set[int]()
    while ahead and len(known) < _MOST_OBJECTS:
        one = ahead.pop(0)
        if id(one) in known:
            continue
        known.add(id(one))
        held = attributes(one)
        counted = _counted(held)
        caches = [
            (name, value) for name, value in held.items() if isinstance(value, dict) and dict.__len__(value)
        ]
        if counted is not None and caches:
            name, cache = max(caches, key=lambda pair: dict.__len__(pair[1]))
            yield one, name, cache, *counted
        ahead += [value for value in held.values() if attributes(value)]


def _counted(held: dict[str, Any]) -> tuple[int, int] | None:
    for names in _COUNTERS:
        hits, misses = (held.get(name) for name in names)
        if type(hits) is int and type(misses) is int:
            return hits, misses
    return None


def _numbers(cache: dict[Any, Any]) -> set[int]:
    """A number for each key, the same in every process; none where there are too many or any other keys."""
    if dict.__len__(cache) > _MOST_ENTRIES:
        return set()
    keys = list(dict.keys(cache))
    return {zlib.crc32(repr(key).encode()) for key in keys} if all(map(_is_plain, keys)) else set()


def _is_plain(key: Any) -> bool:
    """Whether ``repr`` is Python's own and tells it from others."""
    return type(key) in _PLAIN or (type(key) is tuple and all(map(_is_plain, key)))
