"""How often the caches of ``hotloop.feed`` hit."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import RAISED

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Notes of one cache: a day of training says the same again and again.
_MAX_NOTES: Final = 1000


class Caches:
    """Notes each cache's figures, once a second where they moved, when it goes, and at exit."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self.restart()

    def restart(self) -> None:
        """In a forked child: its parent tells what it reads."""
        #: id -> the cache, what it shares with all its readers (the counters), reads and notes so far
        self._caches: dict[int, tuple[weakref.ref[Any], Any, list[int]]] = {}
        self._count = 0

    def install(self, observer: str) -> None:
        """Learn of every cache that is made."""
        hooks = self._probe.hooks
        gone = hooks.guard(observer, self._gone)

        def patch(module: Any) -> None:
            def made(cache: Any, start: int, stop: int, result: Any) -> None:
                if result is not RAISED:
                    self._count += 1
                    number = self._count
                    ref = weakref.ref(cache, lambda _: gone(number))
                    self._caches[number] = ref, (cache._shared, module.Row), [0, 0]

            hooks.around(
                module.SampleCache, "__init__", observer, lambda args, *_: args[0], made, any_thread=True
            )

        hooks.on_import("hotloop.feed.cache.cache", patch, observer)
        self._probe.on_second(observer, self.write)
        self._probe.on_exit(observer, self.write)
        self._probe.on_fork(observer, self.restart)

    def write(self) -> None:
        """Note what is new."""
        for number in list(self._caches):
            self._write(number)

    def _gone(self, number: int) -> None:
        self._write(number)
        del self._caches[number]

    def _write(self, number: int) -> None:
        _, (shared, row), seen = self._caches[number]
        if shared.table is None:
            return
        rows = shared.table.rows
        hits, misses = (int(rows[rows[:, row.PID] > 0, column].sum()) for column in (row.HITS, row.MISSES))
        if hits + misses != seen[0] and seen[1] < _MAX_NOTES:
            seen[:] = hits + misses, seen[1] + 1
            self._probe.note("cache", id=number, hits=hits, misses=misses)
