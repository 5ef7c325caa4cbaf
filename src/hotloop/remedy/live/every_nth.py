"""Live forms that make a call of the script's once in N rounds of the optimizers, by the place that calls.

What the script computes for a call (an f-string, ``.item()``) is computed as ever: only the call is left out.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.observers.memory import resident_bytes
from hotloop.remedy.live.form import Form

#: Places that call; any further one is left as it is.
_MOST_PLACES: Final = 1_000
#: Descriptors of standard output and error.
_SCREEN: Final = (1, 2)
#: Among the arguments of ``tqdm.write``, behind its class and the line.
_FILE_OF_WRITE: Final = 2
#: Bytes by which the process, or its tensors on the CUDA device, may have grown since the last collection.
_MOST_GROWN: Final = 64 << 20
_FULL: Final = 2
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

    def _counted(self, place: tuple[CodeType, int], due: bool, made: int) -> bool:
        now = self.probe.count.rounds
        self._calls += 1
        self._rounds[place] = (now, now if due else made)
        if not due:
            self.took()
        return due


class FewerPrints(EveryNth):
    """``print`` and ``tqdm.write`` of the script's own code, to its standard output or error: in one round
    of N.
    """

    words = "printed"

    def install(self) -> None:
        """Around the builtin, and around tqdm's own where that is imported."""
        self.wrap(builtins, "print", functools.partial(self._wanted, None))
        write = functools.partial(self._wanted, _FILE_OF_WRITE)
        self.probe.hooks.on_import(
            "tqdm.std", lambda module: self.wrap(module.tqdm, "write", write), self.name
        )

    def _wanted(self, file_at: int | None, frame: FrameType, args: Any, kwargs: Any) -> bool:
        file = kwargs.get("file") if not file_at or len(args) <= file_at else args[file_at]
        if not self.is_own(frame) or not _is_shown(file):
            return True
        now, place = self.probe.count.rounds, (frame.f_code, frame.f_lasti)
        last, made = self._rounds.get(place, (0, 0))
        due = (now - 1) % self.every == 0 or now - last > 1 or now == made
        return self._counted(place, due, made)


class RarerCollections(EveryNth):
    """Full collections that the script's own code calls for: one in N rounds, and at once where the process
    has grown. One that is left out answers 0.
    """

    switchable = False
    words = "collected"

    def install(self) -> None:
        """Around ``gc.collect``; what was imported from ``gc`` before torch is not seen."""
        self._level: int | None = None  # after the last collection done
        self.wrap(gc, "collect", self._wanted, instead=0)

    def _wanted(self, frame: FrameType, args: Any, kwargs: Any) -> bool:
        if kwargs.get("generation", args[0] if args else _FULL) != _FULL or not self.is_own(frame):
            return True
        now, place = self.probe.count.rounds, (frame.f_code, frame.f_lasti)
        _, made = self._rounds.get(place, (0, -self.every))
        grown = self._level is None or self._held_bytes() > self._level + _MOST_GROWN
        due = grown or now - made >= self.every
        self._level = None if due else self._level
        return self._counted(place, due, made)

    def done(self) -> None:
        """What is held now is no garbage."""
        if self._level is None:
            self._level = self._held_bytes()

    def _held_bytes(self) -> int:
        """Of the process, and of tensors on the CUDA device."""
        cuda = self.torch.cuda
        return resident_bytes() + (int(cuda.memory_allocated()) if cuda.is_initialized() else 0)


def _is_shown(file: Any) -> bool:
    """Whether a stream, None for standard output as it is now, is the process's own and not the script's."""
    try:
        return (sys.stdout if file is None else file).fileno() in _SCREEN
    except (AttributeError, OSError, TypeError, ValueError):
        return False
