"""Progress bars of tqdm and rich: their total and how far they came, from which the run's length is told.

A bar is looked at when it is made and closed, and once a second; nothing happens in its steps.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import inf
from types import FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.probe import Probe

_NAME: Final = "observers.bars"
#: A bar is written again once it has come so much further.
_FURTHER: Final = 1.05
#: Places whose bars are followed.
_MOST: Final = 64


class Bars:
    """The bars of a process by the stack that made them, of each the first: what makes two is in a loop."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self.restart()

    def restart(self) -> None:
        """Follow none: those of before a fork are the parent's."""
        self._bars: dict[int, tuple[Callable[[], Any], str]] = {}  # weak, and the name of its count
        self._told: dict[int, float] = {}

    def add(self, bar: Any, count: str, frame: FrameType) -> None:
        """Follow a bar made at ``frame``, ``count`` the name of what it has counted."""
        stack = self._probe.stack(frame)
        if stack not in self._bars and len(self._bars) < _MOST:
            self._bars[stack] = weakref.ref(bar), count
        elif self._told.get(stack, inf) < inf:
            self._told[stack] = inf
            self._probe.note("bar", stack=stack, count=0, total=0)

    def look(self, further: float = 1.0) -> None:
        """Write those that came ``further`` since they were written last."""
        for stack, (alive, name) in list(self._bars.items()):
            bar = alive()
            count, total = getattr(bar, name, None), getattr(bar, "total", None)
            if not isinstance(count, int | float) or not isinstance(total, int | float):
                continue
            if further * self._told.get(stack, 0) < count <= total < 1 << 60:
                self._told[stack] = count
                self._probe.note("bar", stack=stack, count=int(count), total=int(total))


def install(probe: Probe) -> None:
    """Follow the bars that the script, or what it calls, makes."""
    bars = Bars(probe)
    around = probe.hooks.around

    def looked(*called: Any) -> None:
        bars.look()

    def framed(args: Any, kwargs: Any, frame: FrameType) -> tuple[Any, FrameType]:
        return args[0], frame

    def tqdm(module: Any) -> None:
        def made(token: Any, start: int, stop: int, result: Any) -> None:
            if result is not RAISED:
                bars.add(result, "n", token[1])

        around(module.tqdm, "__new__", _NAME, framed, made)
        around(module.tqdm, "close", _NAME, looked, looked)

    def rich(module: Any) -> None:
        def made(token: Any, start: int, stop: int, result: Any) -> None:
            if result is not RAISED:
                bars.add(token[0]._tasks[result], "completed", token[1])

        around(module.Progress, "add_task", _NAME, framed, made)
        around(module.Progress, "stop", _NAME, looked, looked)

    probe.hooks.on_import("tqdm.std", tqdm, _NAME)
    probe.hooks.on_import("rich.progress", rich, _NAME)
    probe.on_second(_NAME, lambda: bars.look(_FURTHER))
    probe.on_exit(_NAME, bars.look)
    probe.on_fork(_NAME, bars.restart)
