"""Live form that lets progress bars draw less often: of all calls only those of ``refresh`` are left out."""

from __future__ import annotations

from time import monotonic
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live.form import Form
from hotloop.state.identity import Known

#: Seconds between two pictures of one progress bar.
APART_S: Final = 1.0

_REFRESH = """
def {name}(self, nolock=False, lock_args=None):
    if nolock or wanted(self) is not False:
        return original(self, nolock=nolock, lock_args=lock_args)
"""


class ThrottledProgress(Form):
    """Bars of tqdm, and of what is built on it.

    The first picture and the last are always drawn, and those behind other output, which cleared the bar.
    """

    switchable = True

    def install(self) -> None:
        """Around ``tqdm.refresh``, which a bar's end does not go through."""
        self._drawn: Known[float] = Known()
        self.probe.hooks.on_import("tqdm.std", self._join, self.name)

    def _join(self, module: Any) -> None:
        wanted = self.guard(self._wanted)
        self.probe.hooks.patch(
            module.tqdm, "refresh", lambda original: compile_beside(original, _REFRESH, wanted=wanted)
        )

    def _wanted(self, bar: Any) -> bool:
        if not self.active:
            return True
        now_s, drawn_s = monotonic(), self._drawn.get(bar)
        if drawn_s is not None and now_s - drawn_s < APART_S:
            self.took()
            return False
        self._drawn.put(bar, now_s)
        return True
