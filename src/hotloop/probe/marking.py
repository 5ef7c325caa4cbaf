"""``with hotloop.step():`` marks one training step where a loop hides it; nothing without a probe."""

from __future__ import annotations

import sys
from _thread import get_ident
from types import TracebackType
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.record.rows import OPTIMIZER, STEP, U16_MAX

#: In place of an optimizer's id: no optimizer's.
_OURS: Final = U16_MAX - 2


class Step:
    """One step. ``samples``: of its batch, where no DataLoader tells. ``update``: the weights change in it
    without an optimizer of torch's.
    """

    __slots__ = ("_probe", "_samples", "_start", "_update")

    def __init__(self, samples: int = 0, update: bool = False) -> None:
        install = sys.modules.get("hotloop.probe.install")
        self._probe: Any = install.current() if install is not None else None
        self._samples, self._update = samples, update

    def __enter__(self) -> Step:
        self._start = now_ns()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        probe = self._probe
        if probe is not None and error is None and get_ident() == probe.owner:
            probe.hooks.guard("marking", self._mark)(probe, sys._getframe(1))
            if self._update and not probe.count.fed:
                probe.count.stop_if_done()

    def _mark(self, probe: Any, frame: Any) -> None:
        site = probe.site(frame)
        if self._update:
            probe.count.updates += 1
            probe.count.rounds += 1
            now = now_ns()
            probe.emit(OPTIMIZER, now, 0, 0, site, _OURS)
            if probe.count.next_tick <= now:
                probe.tick(now)
        if self._samples > 0:
            probe.emit(STEP, self._start, 0, int(self._samples), site)
