"""Live form of prints: what a line of the script prints step after step, it prints in one step of N.

A tensor among the arguments is turned into text by ``print`` itself, and not at all where that is left out;
an f-string or ``.item()`` is computed before, as ever.
"""

from __future__ import annotations

import builtins
import functools
import sys
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live.form import Form

#: Places that print; any further one is left as it is.
_MOST_PLACES: Final = 1_000
#: Descriptors of standard output and error.
_SCREEN: Final = (1, 2)
#: Among the arguments of ``tqdm.write``, behind its class and the line.
_FILE_OF_WRITE: Final = 2

_PRINT = """
def {name}(*args, **kwargs):
    if is_compiling() or not form.active or get_ident() != owner[0]:
        return original(*args, **kwargs)
    if wanted(getframe(1), args, kwargs) is not False:
        return original(*args, **kwargs)
"""


@dataclass
class _Turn:
    """The step in which one function prints: from the first of its places until that one comes again."""

    began: int  # round
    first: int  # instruction
    is_open: bool = True


class FewerPrints(Form):
    """``print`` and ``tqdm.write`` of the script's own code, to its standard output or error.

    Calls are left out where they come in successive rounds of the optimizers, all that one function makes in
    a step or none: N rounds after those that were printed the next are. What comes more seldom always is.
    """

    switchable = True

    def install(self) -> None:
        """Around the builtin, and around tqdm's own where that is imported."""
        #: By code and instruction: the rounds of the last call, and of the last that was printed.
        self._rounds: dict[tuple[CodeType, int], tuple[int, int]] = {}
        self._turns: dict[CodeType, _Turn] = {}
        self._calls = 0
        self._wrap(builtins, "print")
        self.probe.hooks.on_import(
            "tqdm.std", lambda module: self._wrap(module.tqdm, "write", _FILE_OF_WRITE), self.name
        )

    @property
    def group(self) -> int:
        """Steps that hold one which prints."""
        return int(self.value)

    def on(self) -> None:
        """Every function prints in the next step, and N after it."""
        super().on()
        self._rounds.clear()
        self._turns.clear()

    def status(self) -> str:
        """With how many calls were left out."""
        said = super().status()
        if said == "in effect":
            return f"in effect: {self._calls - self.count} of {self._calls} calls printed"
        return said

    def _wrap(self, owner: Any, name: str, file_at: int | None = None) -> None:
        hooks = self.probe.hooks
        wanted = self.guard(functools.partial(self._wanted, file_at))
        names: dict[str, Any] = {"form": self, "owner": hooks.recorded, "wanted": wanted}
        hooks.patch(owner, name, lambda original: compile_beside(original, _PRINT, **names))

    def _wanted(
        self, file_at: int | None, frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        now = self.probe.count.rounds
        if not now or len(self._rounds) >= _MOST_PLACES or self.probe.user_frame(frame) is not frame:
            return True
        if not _is_shown(kwargs.get("file") if not file_at or len(args) <= file_at else args[file_at]):
            return True
        self._calls += 1
        place = (frame.f_code, frame.f_lasti)
        is_new = place not in self._rounds
        last, printed = self._rounds.get(place, (-self.value, -self.value))
        is_turn = self._is_turn(*place, now, is_new=is_new, follows=now - last == 1)
        if is_turn or now - last > 1 or now == printed:
            self._rounds[place] = (now, now)
            return True
        self._rounds[place] = (now, printed)
        self.took()
        return False

    def _is_turn(self, code: CodeType, at: int, now: int, *, is_new: bool, follows: bool) -> bool:
        """Whether this is a step in which the function prints: it may begin before the update, at its first
        place, and end behind it. ``follows``: the last call of the place came in the round before.
        """
        turn = self._turns.get(code)
        if turn is None:
            self._turns[code] = _Turn(now, at)
            return True
        if at < turn.first and (is_new or follows):
            turn.first = at
        since = now - turn.began
        if follows and (since > self.value or (since == self.value and at == turn.first)):
            self._turns[code] = _Turn(now, at)
            return True
        if since > 1 or (since == 1 and at == turn.first):
            turn.is_open = False
        return turn.is_open


def _is_shown(file: Any) -> bool:
    """Whether a stream, None for standard output as it is now, is the process's own and not the script's."""
    try:
        return (sys.stdout if file is None else file).fileno() in _SCREEN
    except (AttributeError, OSError, TypeError, ValueError):
        return False
