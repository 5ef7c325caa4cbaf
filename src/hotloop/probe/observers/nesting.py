"""The common shape of an observer: one row per outermost call of a family of functions."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: ``row(args, kwargs) -> (value, obj)``: what the row carries besides its interval and site.
Describe = Callable[[tuple[Any, ...], dict[str, Any]], tuple[int, int]]


class Outermost:
    """Begin and end functions for a family: a call inside another of the family belongs to the outer one."""

    def __init__(self, probe: Probe, kind: int) -> None:
        self._probe = probe
        self._kind = kind
        self._inside = False
        probe.on_fork("nesting", self.restart)

    def restart(self) -> None:
        """In a forked child: whatever was running, was running in the parent."""
        self._inside = False

    def begin(self, describe: Describe) -> Callable[[tuple[Any, ...], dict[str, Any], FrameType], Any]:
        """The ``begin`` of one function of the family."""
        probe = self._probe

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
            if self._inside:
                return None
            value, obj = describe(args, kwargs)
            self._inside = True
            return probe.site(frame), value, obj

        return begin

    def end(self, token: Any, start: int, stop: int, result: Any) -> None:
        """Write the row."""
        self._inside = False
        site, value, obj = token
        self._probe.emit(self._kind, start, stop - start, value, site, obj)


def constant(obj: int, value: int = 0) -> Describe:
    """A description that is the same for every call."""
    return lambda args, kwargs: (value, obj)
