"""What grows from step to step: source lines, types and containers. Only on request (``hotloop memory``): it
traces every allocation of Python (``tracemalloc``), which slows Python code down.

Tracing begins after a few steps, with the first look at objects. Every later look writes a ``growth`` note:
the blocks allocated since then that are still there, and how many objects and items there are more. After
a few looks tracing ends: what leaks has been seen by then, and the run goes on at its own speed.
"""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from collections import Counter, deque
from collections.abc import Callable, Mapping
from time import perf_counter_ns, thread_time_ns
from types import FrameType, ModuleType
from typing import Any, Final

from hotloop.probe.probe import Probe
from hotloop.state.stored import attributes

NAME: Final = "observers.growth"
#: Frames kept of each allocation: enough to find the user's line above a library's.
_FRAMES: Final = 8
#: Looks with tracing on.
_TRACED: Final = 8
#: Steps before the first look: optimizers make their state in the first, caches fill in the next.
_WARM_UP: Final = 10
_EVERY_NS: Final = 1_000_000_000
#: ... and never more often than this many times what a look takes.
_COST: Final = 6
_MOST: Final = 12
#: Containers shorter than this are not followed, and no more than this many of them.
_LONG: Final = 32
_CONTAINERS: Final = (list, dict, set, deque)

Sizes = tuple[int, int]  # bytes, objects
Lines = dict[tuple[str, int], Sizes]  # file and line


class Growth:
    """Takes the looks; one per process. In a DataLoader worker its batches are the steps."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._restart()

    def _restart(self) -> None:
        self._steps = 0
        self._due_ns = 0
        self._base_ns = 0
        self._base_steps = 0
        self._traced = 0  # looks so far with tracing on, -1: no more, or the script traces itself
        self._types: dict[str, Sizes] = {}
        self._lengths: dict[int, int] = {}

    def forked(self) -> None:
        """In a forked child: what its parent saw is not its own."""
        if self._base_ns and self._traced >= 0:
            tracemalloc.stop()
        self._restart()

    def look(self) -> None:
        """At the end of an update: a look, where one is due."""
        self._look(self._probe.count.steps, gc.get_objects)

    def look_in_worker(self, made: int) -> None:
        """After so many batches: a look at lines alone, where one is due.

        To hold all objects would count a reference to each, and copy every page shared with the parent.
        """
        self._look(made, list)

    def _look(self, steps: int, all_objects: Callable[[], list[Any]]) -> None:
        now, self._steps = perf_counter_ns(), steps
        if now < self._due_ns or steps < _WARM_UP:
            return
        begin = thread_time_ns()
        self._take(now, all_objects)
        self._due_ns = perf_counter_ns() + max(_EVERY_NS, _COST * (thread_time_ns() - begin))

    def _take(self, now: int, all_objects: Callable[[], list[Any]]) -> None:
        lines = self._allocated() if self._base_ns and tracemalloc.is_tracing() else {}
        objects = all_objects()
        types = self._count(objects)
        if not self._base_ns:
            self._base_ns, self._base_steps = now, self._steps
            self._types = types
            self._lengths = {
                id(one): len(one) for one in objects if type(one) in _CONTAINERS and len(one) > _LONG
            }
            self._start()
            return
        steps = self._steps - self._base_steps
        grown = self._grown(objects, max(4, steps // 2))
        del objects
        self._probe.note(
            "growth",
            seconds=(now - self._base_ns) / 1e9,
            steps=steps,
            lines=_largest(lines, {}),
            types=_largest(types, self._types),
            containers=[[type(one).__name__, *self._owner(one), len(one), more] for more, one in grown],
        )
        self._stop_when_seen()

    def _grown(self, objects: list[Any], least: int) -> list[tuple[int, Any]]:
        """Containers with so many more items, the most first. Makes few objects: each would be traced."""
        grown = []
        for one in objects:
            if type(one) in _CONTAINERS and len(one) >= _LONG + least and one is not self._lengths:
                more = len(one) - self._lengths.get(id(one), _LONG)
                if more >= least:
                    grown.append((more, one))
        return sorted(grown, key=lambda entry: -entry[0])[: _MOST // 2]

    def _start(self) -> None:
        """Trace from here on, unless the script does so already."""
        if tracemalloc.is_tracing():
            self._traced = -1
            return
        tracemalloc.start(_FRAMES)
        self._probe.hooks.at_undo(tracemalloc.stop)

    def _stop_when_seen(self) -> None:
        if self._traced >= 0:
            self._traced += 1
            if self._traced >= _TRACED:
                self._traced = -1
                tracemalloc.stop()

    def _allocated(self) -> Lines:
        """Live blocks since the first look by the innermost line of the user, else of a library."""
        sums: Lines = {}
        is_user, own = self._probe.is_user, os.sep + "hotloop" + os.sep
        for statistic in tracemalloc.take_snapshot().statistics("traceback"):
            frames = list(reversed(statistic.traceback))
            if own in frames[0].filename:
                continue
            frame = next((one for one in frames if is_user.file(one.filename)), frames[0])
            key = (is_user.path(frame.filename), frame.lineno)
            size, count = sums.get(key, (0, 0))
            sums[key] = (size + statistic.size, count + statistic.count)
        return sums

    def _count(self, objects: list[Any]) -> dict[str, Sizes]:
        """Name of a type -> bytes (of the storages of tensors, each once; else 0) and objects."""
        tensor = self._probe.torch.Tensor
        counts = Counter(map(type, objects))
        tensors = {kind for kind in counts if issubclass(kind, tensor)}
        storages: dict[type, dict[int, int]] = {kind: {} for kind in tensors}
        with self._probe.torch._C.DisableTorchFunction():
            for one in [one for one in objects if type(one) in tensors]:
                if one.layout is self._probe.torch.strided:
                    storage = one.untyped_storage()
                    storages[type(one)][storage.data_ptr()] = storage.nbytes()
        return {
            f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."): (
                sum(storages.get(kind, {}).values()),
                count,
            )
            for kind, count in counts.items()
        }

    def _owner(self, container: Any) -> tuple[str, str]:
        """What holds a container, and its name there: a running function, a module, an object's class."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self._probe.is_user(frame.f_code):
                for name, value in frame.f_locals.items():
                    if value is container:
                        return frame.f_code.co_name, name
            frame = frame.f_back
        for holder in gc.get_referrers(container):
            if isinstance(holder, dict):
                name = next((str(key) for key, value in holder.items() if value is container), "")
                above = next(
                    (one for one in gc.get_referrers(holder) if attributes(one) is holder),
                    None,
                )
                if name and above is not None:
                    return (above.__name__ if isinstance(above, ModuleType) else type(above).__name__), name
            else:
                known = attributes(holder).items()
                name = next((key for key, value in known if value is container), "")
                if name:
                    return type(holder).__name__, name
        return "", ""


def _largest(now: Mapping[Any, Sizes], before: Mapping[Any, Sizes]) -> list[Any]:
    """What grew most, in bytes and in number, as ``[name, bytes, count]``."""
    grown = []
    for key, (size, count) in now.items():
        size_before, count_before = before.get(key, (0, 0))
        if size > size_before or count > count_before:
            grown.append([key, size - size_before, count - count_before])
    by_size = sorted(grown, key=lambda entry: -entry[1])[:_MOST]
    by_count = sorted(grown, key=lambda entry: -entry[2])[:_MOST]
    return by_size + [entry for entry in by_count if entry not in by_size]


def install(probe: Probe) -> None:
    """Look once in a while, where the launcher asks for it."""
    if not os.environ.get("HOTLOOP_MEMORY") or probe.role == "helper":
        return
    growth = Growth(probe)
    probe.on_fork(NAME, growth.forked)
    probe.on_made(NAME, growth.look_in_worker)
    if not probe.asleep:
        probe.on_second(NAME, growth.look)
