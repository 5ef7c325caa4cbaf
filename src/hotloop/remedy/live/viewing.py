"""Live form of a viewer served in the step: its function is called in one step of N."""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from hotloop.remedy.live.answers import dropped
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.targets import copied, functions, through

#: Steps between two that serve the viewer, as in what ``fix`` writes.
_EVERY: Final = 50


class ThrottledViewer(Form):
    """Leaves out calls of the function that ``value`` names (``FILE.py:FUNCTION``) where nobody reads the
    answer and they come in successive rounds of the optimizers; one that trains is no viewer.
    """

    switchable = True

    def install(self) -> None:
        """Once the script trains, its functions are there."""
        self._trains = False
        self.probe.on_update(self.name, self._find)

    @property
    def group(self) -> int:
        """Steps that hold one in which the viewer is served."""
        return _EVERY

    def _find(self) -> None:
        self.probe.off_update(self._find)
        found = functions(str(self.value or ""))
        if not found:
            self.say(f"no function {self.value!r} was found; write FILE.py:FUNCTION")
        for function in found:
            code = function.__code__
            if code.co_freevars:
                self.say(f"{function.__qualname__} holds variables of another function")
                continue
            self.probe.hooks.at_undo(functools.partial(setattr, function, "__code__", code))
            function.__code__ = through(code, self._around(copied(function)))

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        wanted, called = self.guard(self._wanted), self.guard(self._called)
        rounds = [-_EVERY, -_EVERY]  # of the last call, of the last that was done

        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if wanted(sys._getframe(2), rounds) is False:
                return None
            backwards = self.probe.count.backwards
            try:
                return original(*args, **kwargs)
            finally:
                called(backwards)

        return call

    def _wanted(self, frame: FrameType, rounds: list[int]) -> bool:
        if not self.active or self._trains or self.probe.hooks.owner != get_ident():
            return True
        now, (last, served) = self.probe.count.rounds, rounds
        rounds[0] = now
        due = now == served or now - last > 1 or now - served >= _EVERY
        if due or not dropped(frame.f_code, frame.f_lasti):
            rounds[1] = now
            return True
        self.took()
        return False

    def _called(self, backwards: int) -> None:
        if self.probe.count.backwards != backwards and not self._trains:
            self._trains = True
            self.say(f"{self.value} trains: it is left as it is")
