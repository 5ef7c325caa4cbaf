"""Live forms that make a call of the script's once in N rounds of the optimizers, by the place that calls.

What the script computes for a call (an f-string, ``.item()``) is computed as ever: only the call is left out.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
from _thread import get_ident
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from opcode import opmap
from types import CodeType, FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.observers.memory import resident_bytes
from hotloop.remedy.live.exchanged import copied, functions, through
from hotloop.remedy.live.form import Form
from hotloop.state.generators import random_states
from hotloop.state.identity import Known

#: Places that call; any further one is left as it is.
_MOST_PLACES: Final = 1_000
#: Descriptors of standard output and error.
_SCREEN: Final = (1, 2)
#: Among the arguments of ``tqdm.write``, behind its class and the line.
_FILE_OF_WRITE: Final = 2
#: Bytes by which the process, or what is allocated on its devices, may have grown since the last collection.
_MOST_GROWN: Final = 64 << 20
_FULL: Final = 2
#: Steps between two that serve a viewer; calls of its function that are looked at before one is left out, as
#: some train in each Nth call only.
_EVERY: Final = 50
_LOOKED: Final = 10
#: What makes a function more than a viewer, in the order of ``ThrottledViewer._state``.
_MORE: Final = ("trains", "draws random numbers", "changes what is trained")
_CACHE, _POP_TOP = opmap.get("CACHE", 0), opmap["POP_TOP"]

_CALL = """
def {name}(*args, **kwargs):
    if is_compiling() or not form.active or get_ident() != owner[0]:
        return original(*args, **kwargs)
    if wanted(getframe(1), args, kwargs) is False:
        return instead
    found = original(*args, **kwargs)
    done()
    return found
"""


class EveryNth(Form):
    """Calls that come in successive rounds, of which one in N is made; what comes more seldom always is.

    ``value`` is N.
    """

    switchable = True
    words = "made"

    def __init__(self, context: Any, value: Any) -> None:
        super().__init__(context, value)
        #: By code and instruction: the rounds of the last call, and of the last that was made.
        self._rounds: dict[tuple[CodeType, int], tuple[int, int]] = {}
        self._calls = 0

    @property
    def every(self) -> int:
        """Rounds between two calls that are made."""
        return int(self.value)

    @property
    def group(self) -> int:
        """Steps that hold one with the call."""
        return self.every

    def on(self) -> None:
        """Every place calls in the next step, and N after it."""
        super().on()
        self._rounds.clear()

    def status(self) -> str:
        """With how many calls were left out."""
        said = super().status()
        if said == "in effect" and self._calls:
            return f"in effect: {self._calls - self.count} of {self._calls} calls {self.words}"
        return said

    def wrap(self, owner: Any, name: str, wanted: Callable[..., bool], instead: Any = None) -> None:
        """Have ``wanted(frame, args, kwargs)`` say which calls are made; ``instead`` is what others give."""
        names: dict[str, Any] = {"form": self, "owner": self.probe.hooks.recorded, "instead": instead}
        names |= {"wanted": self.guard(wanted), "done": self.guard(self.done)}
        self.probe.hooks.patch(owner, name, lambda original: compile_beside(original, _CALL, **names))

    def done(self) -> None:
        """A call was made."""

    def is_own(self, frame: FrameType) -> bool:
        """Whether the user's own code calls, once training runs."""
        known = len(self._rounds) < _MOST_PLACES
        return bool(self.probe.count.rounds) and known and self.probe.user_frame(frame) is frame

    def is_due(self, frame: FrameType, *, seldom: bool = True) -> bool:
        """Whether the call is to be made; ``seldom``: also where none came in the round before."""
        now, place = self.probe.count.rounds, (frame.f_code, frame.f_lasti)
        last, made = self._rounds.get(place, (-self.every, -self.every))
        due = now - made >= self.every or (seldom and (now - last > 1 or now == made))
        self._calls += 1
        self._rounds[place] = (now, now if due else made)
        if not due:
            self.took()
        return due


@dataclass
class _Step:
    """The step of a function that prints."""

    first: int  # instruction
    began: int  # round
    printed: int  # round of the last step that printed
    prints: bool = True


class FewerPrints(EveryNth):
    """``print`` and ``tqdm.write`` of the script's own code, to its standard output or error: all that one
    function prints in a step, or none.
    """

    words = "printed"

    def install(self) -> None:
        """Around the builtin, and around tqdm's own where that is imported."""
        self._steps: dict[CodeType, _Step] = {}
        self.wrap(builtins, "print", functools.partial(self._wanted, None))
        write = functools.partial(self._wanted, _FILE_OF_WRITE)
        self.probe.hooks.on_import(
            "tqdm.std", lambda module: self.wrap(module.tqdm, "write", write), self.name
        )

    def on(self) -> None:
        """Every function prints in the next step."""
        super().on()
        self._steps.clear()

    def _wanted(self, file_at: int | None, frame: FrameType, args: Any, kwargs: Any) -> bool:
        file = kwargs.get("file") if not file_at or len(args) <= file_at else args[file_at]
        if not self.is_own(frame) or not _is_shown(file):
            return True
        code, at, now = frame.f_code, frame.f_lasti, self.probe.count.rounds
        last, printed = self._rounds.get((code, at), (0, 0))
        due = self._prints(code, at, now, last) or now - last > 1 or now == printed
        self._calls += 1
        self._rounds[code, at] = (now, now if due else printed)
        if not due:
            self.took()
        return due

    def _prints(self, code: CodeType, at: int, now: int, last: int) -> bool:
        """Whether this is a step in which the function prints: it begins at its first place, which may come
        before the update, and ends where that place comes again.
        """
        step = self._steps.setdefault(code, _Step(at, now, now))
        follows = last in (0, now - 1)
        if (at == step.first and now != step.began) or now - step.began > 1:
            step.first, step.began = at, now
            step.prints = now - step.printed >= self.every
            step.printed = now if step.prints else step.printed
        elif at < step.first and follows:
            step.first, step.began = at, now
        return step.prints


class RarerCollections(EveryNth):
    """Full collections that the script's own code calls for and whose answer it drops: one in N rounds, and
    at once where memory has grown.
    """

    switchable = False
    words = "collected"

    def install(self) -> None:
        """Around ``gc.collect``; what was imported from ``gc`` before torch is not seen."""
        self._level: int | None = None  # after the last collection done; None until it has run
        self.wrap(gc, "collect", self._wanted, instead=0)

    def _wanted(self, frame: FrameType, args: Any, kwargs: Any) -> bool:
        full = kwargs.get("generation", args[0] if args else _FULL) == _FULL
        if not full or not self.is_own(frame) or not dropped(frame.f_code, frame.f_lasti):
            return True
        if self._level is None or self._held_bytes() > self._level + _MOST_GROWN:
            self._rounds.pop((frame.f_code, frame.f_lasti), None)
        due = self.is_due(frame, seldom=False)
        self._level = None if due else self._level
        return due

    def done(self) -> None:
        """What is held now is no garbage."""
        if self._level is None:
            self._level = self._held_bytes()

    def _held_bytes(self) -> int:
        """Of the process, and of tensors on every CUDA device."""
        cuda = self.torch.cuda
        devices = range(cuda.device_count()) if cuda.is_initialized() else ()
        found = (cuda.memory_stats_as_nested_dict(device) for device in devices)
        held = [stats.get("allocated_bytes", {}).get("all", {}).get("current", 0) for stats in found]
        return resident_bytes() + int(sum(held))


class ThrottledViewer(EveryNth):
    """Leaves out calls of the function that ``value`` names (``FILE.py:FUNCTION``), where nobody reads the
    answer.

    One that trains, draws random numbers, or changes parameters, gradients or learning rates is no viewer.
    """

    every = _EVERY

    def install(self) -> None:
        """Once the script trains, its functions are there."""
        self._no_viewer = False
        self._looked: dict[CodeType, int] = {}
        self._optimizers: Known[bool] = Known()
        self.probe.on_update(self.name, self._find)

    def status(self) -> str:
        """As every form."""
        return Form.status(self)

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

    def _around(self, original: Any) -> Callable[..., Any]:
        wanted, state, look = self.guard(self._wanted), self.guard(self._state), self.guard(self._look)
        code: CodeType = original.__code__

        def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            due = wanted(sys._getframe(2), code)
            if due is False:
                return None
            before = state() if due else None
            result = original(*args, **kwargs)
            if before is not None:
                look(code, before)
            return result

        return call

    def _wanted(self, frame: FrameType, code: CodeType) -> bool | None:
        """Whether it is served, and looked at; None: called as ever."""
        is_new = self._looked.get(code, 0) < _LOOKED
        if self._no_viewer or not (self.active or is_new) or self.probe.hooks.owner != get_ident():
            return None
        if is_new:
            self._rounds[frame.f_code, frame.f_lasti] = (self.probe.count.rounds, self.probe.count.rounds)
            return True
        return self.is_due(frame) if dropped(frame.f_code, frame.f_lasti) else None

    def _state(self) -> tuple[Any, ...]:
        count = self.probe.count
        return (count.backwards, count.rounds, count.updates), random_states(), self._trained()

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

    def _look(self, code: CodeType, before: tuple[Any, ...]) -> None:
        self._looked[code] = self._looked.get(code, 0) + 1
        for what, was, now in zip(_MORE, before, self._state(), strict=True):
            if was != now and not self._no_viewer:
                self._no_viewer = True
                until = f", {self.count} calls were left out before" if self.count else ""
                self.say(f"{self.value} {what}: it is left as it is{until}")


@lru_cache(maxsize=_MOST_PLACES)
def dropped(code: CodeType, at: int) -> bool:
    """Whether the call at an instruction (``f_lasti``) is a statement of its own: nobody reads its answer."""
    behind, at = code.co_code, at + 2
    while at < len(behind) and behind[at] == _CACHE:
        at += 2
    return at < len(behind) and behind[at] == _POP_TOP


def _is_shown(file: Any) -> bool:
    """Whether a stream, None for standard output as it is now, is the process's own and not the script's."""
    try:
        return (sys.stdout if file is None else file).fileno() in _SCREEN
    except (AttributeError, OSError, TypeError, ValueError):
        return False
