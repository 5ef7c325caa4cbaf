"""What a cache of the dataset's own holds in a worker, and how often it hits.

Seen are dictionaries that something in the dataset holds beside two counters, of hits and of misses: without
them nobody can tell. Values are read where they are stored, and nothing of the script's is called.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

from hotloop.probe import batches
from hotloop.probe.probe import Probe
from hotloop.state.snapshot import reached
from hotloop.state.stored import attributes

#: Names of the two counters.
_HITS: Final = re.compile(r"_?(num_|cache_)?hit(s|_count)?$")
_MISSES: Final = re.compile(r"_?(num_|cache_)?miss(es|_count)?$")
#: Entries of a cache that are numbered, and notes of a worker.
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
        holder = next(iter(reached(dataset, cache_of)), None) if self._notes < _MOST_NOTES else None
        found = cache_of(holder)
        if found is None or found[2] + found[3] == self._reads:
            return
        name, cache, hits, misses = found
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


def cache_of(holder: Any) -> tuple[str, dict[Any, Any], int, int] | None:
    """(attribute, cache, hits, misses) of an object that holds all of these."""
    held = attributes(holder)
    hits, misses = _counter(held, _HITS), _counter(held, _MISSES)
    caches = [(name, one) for name, one in held.items() if isinstance(one, dict) and dict.__len__(one)]
    if hits is None or misses is None or not caches:
        return None
    return (*max(caches, key=lambda pair: dict.__len__(pair[1])), hits, misses)


def _counter(held: dict[str, Any], name: re.Pattern[str]) -> int | None:
    return next((one for key, one in held.items() if type(one) is int and name.match(key)), None)


def _numbers(cache: dict[Any, Any]) -> set[int]:
    """A number for each key, the same in every process; none where there are too many or any other keys."""
    if dict.__len__(cache) > _MOST_ENTRIES:
        return set()
    keys = list(dict.keys(cache))
    return {zlib.crc32(repr(key).encode()) for key in keys} if all(map(_is_plain, keys)) else set()


def _is_plain(key: Any) -> bool:
    """Whether ``repr`` is Python's own and tells it from others."""
    return type(key) in _PLAIN or (type(key) is tuple and all(map(_is_plain, key)))
