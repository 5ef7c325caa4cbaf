"""Live form of a viewer served in the step: its function is called in one step of N."""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from hotloop.probe.identity import Known
from hotloop.remedy.live.answers import dropped
from hotloop.remedy.live.form import Form
from hotloop.remedy.live.targets import copied, functions, random_states, through

#: Steps between two that serve the viewer, as in what ``fix`` writes.
_EVERY: Final = 50
#: Calls of a function that are looked at before one is left out: some train in each Nth call only.
_LOOKED: Final = 10
#: What makes a function more than a viewer, in the order of ``_state``.
_MORE: Final = ("trains", "draws random numbers", "changes what is trained")


@dataclass(kw_only=True)
class _Calls:
    """Of one function: the rounds of the last call and of the last that was done; how many were looked at."""

    last: int = -_EVERY
    served: int = -_EVERY
    looked: int = 0


class ThrottledViewer(Form):
    """Leaves out calls of the function that ``value`` names (``FILE.py:FUNCTION``) where nobody reads the
    answer and they come in successive rounds of the optimizers.

    One that trains, draws random numbers, or changes parameters, gradients or learning rates is no viewer.
    """

    switchable = True

    def install(self) -> None:
        """Once the script trains, its functions are there."""
        self._no_viewer = False
        self._optimizers: Known[bool] = Known()
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
            return
        register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
        self.probe.hooks.at_undo(register(self.guard(self._steps)).remove)
        for function in found:
            code = function.__code__
            if code.co_freevars:
                self.say(f"{function.__qualname__} holds variables of another function")
                continue
            self.probe.hooks.at_undo(functools.partial(setattr, function, "__code__", code))
            function.__code__ = through(code, self._around(copied(function)))

    def _steps(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.torch.compiler.is_compiling() and self._optimizers.get(optimizer) is None:
            self._optimizers.put(optimizer, True)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        wanted, state, look = self.guard(self._wanted), self.guard(self._state), self.guard(self._look)
        calls = _Calls()

        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            due = wanted(sys._getframe(2), calls)
            if due is False:
                return None
            before = state() if due else None
            result = original(*args, **kwargs)
            if before is not None:
                look(calls, before)
            return result

        return call

    def _wanted(self, frame: FrameType, calls: _Calls) -> bool | None:
        """Whether it is served, and looked at; None: called as ever."""
        is_new = calls.looked < _LOOKED
        if self._no_viewer or not (self.active or is_new) or self.probe.hooks.owner != get_ident():
            return None
        now, last = self.probe.count.rounds, calls.last
        calls.last = now
        if is_new or now == calls.served or now - last > 1 or now - calls.served >= _EVERY:
            calls.served = now
            return True
        if not dropped(frame.f_code, frame.f_lasti):
            calls.served = now
            return None
        self.took()
        return False

    def _state(self) -> tuple[Any, ...]:
        count = self.probe.count
        return (count.backwards, count.rounds, count.updates), random_states(self.torch), self._trained()

    def _trained(self) -> list[Any]:
        """What tells that parameters, gradients or learning rates were changed; they are not kept alive."""
        found: list[Any] = []
        for optimizer, _ in self._optimizers.values():
            for group in optimizer.param_groups:
                rate = group.get("lr")
                found.append(getattr(rate, "_version", rate))
                for parameter in group["params"]:
                    gradient = parameter.grad
                    found += (id(parameter), parameter._version)
                    found += (id(gradient), 0 if gradient is None else gradient._version)
        return found

    def _look(self, calls: _Calls, before: tuple[Any, ...]) -> None:
        calls.looked += 1
        for what, was, now in zip(_MORE, before, self._state(), strict=True):
            if was != now and not self._no_viewer:
                self._no_viewer = True
                until = f", {self.count} calls were left out before" if self.count else ""
                self.say(f"{self.value} {what}: it is left as it is{until}")
