"""Values that the script logs by name, to TensorBoard or to a tracker: last, smallest, largest, how many."""

from __future__ import annotations

import math
import os
import weakref
from types import FrameType
from typing import Any, Final
from zlib import crc32

from hotloop.hooks.wrapping import RAISED
from hotloop.probe import batches
from hotloop.probe.probe import Probe
from hotloop.state.stored import attribute, is_array, is_tensor

_MAX_NAMES: Final = 1000


class Logged:
    """Collects ``add_scalar(tag, value)`` and ``log({name: value})``; tensors elsewhere are left alone."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seen: dict[str, dict[str, Any]] = {}

    def install(self, observer: str) -> None:
        """Observe the loggers that are imported."""
        hooks = self._probe.hooks

        def scalar(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
            tag = args[1] if len(args) > 1 else kwargs.get("tag")
            self.take(tag, args[2] if len(args) > 2 else kwargs.get("scalar_value"))

        def mapping(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
            data: Any = args[1] if len(args) > 1 else kwargs.get("data")
            for name, value in dict.items(data) if dict in type(data).__mro__ else ():
                self.take(name, value)

        for module, owner, method, begin in (
            ("torch.utils.tensorboard.writer", "SummaryWriter", "add_scalar", scalar),
            ("tensorboardX.writer", "SummaryWriter", "add_scalar", scalar),
            ("wandb.sdk.wandb_run", "Run", "log", mapping),
        ):

            def patch(loaded: Any, owner: str = owner, method: str = method, begin: Any = begin) -> None:
                if hasattr(loaded, owner):
                    hooks.around(getattr(loaded, owner), method, observer, begin, lambda *_: None)

            hooks.on_import(module, patch, observer)
        self._probe.on_second(observer, self.finish)

    def take(self, name: Any, value: Any) -> None:
        """One value under a name."""
        plain = not {int, float}.isdisjoint(type(value).__mro__) or is_array(value)
        if not (plain or is_tensor(value)) or not isinstance(name, str):
            return  # what is made to a number by the script's own code
        if attribute(value, "is_cpu", True) is False:
            return  # on a device: reading it would wait
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):
            return
        seen = self._seen.get(name)
        if seen is None:
            if len(self._seen) >= _MAX_NAMES:
                return
            seen = self._seen[name] = {"count": 0, "non_finite": 0, "min": None, "max": None}
        seen["count"] += 1
        seen["written"] = False
        seen["last"] = number if math.isfinite(number) else None
        if not math.isfinite(number):
            seen["non_finite"] += 1
            return
        seen["min"] = number if seen["min"] is None else min(seen["min"], number)
        seen["max"] = number if seen["max"] is None else max(seen["max"], number)

    def finish(self) -> None:
        """Write what is new; the last note of a name counts."""
        for name, seen in self._seen.items():
            if not seen["written"]:
                seen["written"] = True
                self._probe.note("metric", name=name, **{k: v for k, v in seen.items() if k != "written"})


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


_MAX_ENTRIES: Final = 20_000
#: Notes of one run; a script that saves at every step says nothing new.
_MOST_SAVES: Final = 200


def layout(saved: Any) -> list[list[Any]]:
    """``[path, dtype, shape]`` of tensors and ``[path, type, null]`` of everything else, in order."""
    found: list[list[Any]] = []
    for path, value in batches.leaves(saved, _MAX_ENTRIES):
        shape, dtype = batches.shape(value), attribute(value, "dtype")
        if dtype is not None and shape is not None:
            found.append([path, str(dtype).replace("torch.", ""), list(shape)])
        else:
            found.append([path, type(value).__name__, None])
    return found


class Checkpoints:
    """Notes every ``torch.save``, and ``hotloop.feed.async_save`` when it has copied the state."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._count = 0
        self._layouts: set[int] = set()

    def install(self, observer: str) -> None:
        """Observe both."""
        hooks, torch = self._probe.hooks, self._probe.torch

        def follow(module: Any, name: str = "async_save", also: tuple[Any, ...] = ()) -> None:
            hooks.around(module, name, observer, self._begin, self._end, also=also, unseen=True)

        follow(torch, "save", (torch.serialization,))
        hooks.on_import("hotloop.feed.saving", follow, observer)

    def _begin(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        saved = args[0] if args else kwargs.get("obj")
        target = args[1] if len(args) > 1 else kwargs.get("f")
        path = target if isinstance(target, (str, os.PathLike)) else getattr(target, "name", None)
        return (saved, path) if isinstance(path, (str, os.PathLike)) and self._count < _MOST_SAVES else None

    def _end(self, token: Any, start: int, stop: int, result: Any) -> None:
        saved, path = token
        if result is RAISED:
            return
        self._count += 1
        entries = layout(saved)
        digest = crc32(repr(entries).encode("utf-8", "backslashreplace"))
        new = digest not in self._layouts
        self._layouts.add(digest)
        self._probe.note(
            "checkpoint",
            path=os.path.abspath(path),
            layout=digest,
            entries=entries if new else None,
            updates=self._probe.updates,
        )
