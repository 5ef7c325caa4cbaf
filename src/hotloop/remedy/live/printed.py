"""Live form of prints: what a line of the script prints step after step, it prints in one step of N.

A tensor among the arguments is turned into text by ``print`` itself, and not at all where that is left out;
an f-string or ``.item()`` is computed before, as ever.
"""

from __future__ import annotations

import builtins
import sys
from types import CodeType, FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live.form import Form

#: Places that print; any further one is left as it is.
_MOST_PLACES: Final = 1_000

_PRINT = """
def {name}(*args, **kwargs):
    if is_compiling() or not form.active or get_ident() != owner[0]:
        return original(*args, **kwargs)
    if wanted(getframe(1), kwargs) is not False:
        return original(*args, **kwargs)
"""


class FewerPrints(Form):
    """``print`` and ``tqdm.write`` of the script's own code, to its standard output or error.

    Calls are left out where they come in successive rounds of the optimizers, all of a round or none: N
    rounds after those that were printed the next are. What is printed more seldom always is.
    """

    switchable = True

    def install(self) -> None:
        """Around the builtin, and around tqdm's own where that is imported."""
        #: By code and instruction: the rounds of the last call, and of the last that was printed.
        self._rounds: dict[tuple[CodeType, int], tuple[int, int]] = {}
        self._calls = 0
        self._wrap(builtins, "print")
        self.probe.hooks.on_import("tqdm.std", lambda module: self._wrap(module.tqdm, "write"), self.name)

    @property
    def group(self) -> int:
        """Steps that hold one which prints."""
        return int(self.value)

    def status(self) -> str:
        """With how many calls were left out."""
        said = super().status()
        if said == "in effect":
            return f"in effect: {self._calls - self.count} of {self._calls} calls printed"
        return said

    def _wrap(self, owner: Any, name: str) -> None:
        hooks = self.probe.hooks
        names: dict[str, Any] = {"form": self, "owner": hooks.recorded, "wanted": self.guard(self._wanted)}
        hooks.patch(owner, name, lambda original: compile_beside(original, _PRINT, **names))

    def _wanted(self, frame: FrameType, kwargs: dict[str, Any]) -> bool:
        now = self.probe.count.rounds
        shown = (None, sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        if not now or not any(kwargs.get("file") is one for one in shown):
            return True
        if self.probe.user_frame(frame) is not frame or len(self._rounds) >= _MOST_PLACES:
            return True
        self._calls += 1
        place = (frame.f_code, frame.f_lasti)
        last, printed = self._rounds.get(place, (-self.value, -self.value))
        if now == printed or now - last > 1 or now - printed >= self.value:
            self._rounds[place] = (now, now)
            return True
        self._rounds[place] = (now, printed)
        self.took()
        return False
