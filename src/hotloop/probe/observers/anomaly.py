"""Anomaly detection of autograd: what recording a stack for every operation of forward takes."""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.anomaly"


class Stacks:
    """Counts the stacks that were recorded and their time."""

    def __init__(self, probe: Probe) -> None:
        self._is_on = probe.torch.is_anomaly_enabled
        self.count = 0
        self.spent_ns = 0

    def recorded(self, args: tuple[Any, ...], frame: FrameType, start: int, stop: int) -> None:
        """One more; a compiler asks for stacks too, without anomaly detection."""
        if self._is_on():
            self.count += 1
            self.spent_ns += stop - start


def install(probe: Probe) -> None:
    """Time the function that autograd asks for a stack, and write the sum at exit."""
    stacks = Stacks(probe)

    def patch(module: Any) -> None:
        probe.hooks.after(module, "format_stack", NAME, stacks.recorded)

    def say() -> None:
        if stacks.count:
            probe.note("anomaly", stacks=stacks.count, seconds=stacks.spent_ns / 1e9)

    def forked() -> None:
        stacks.count = stacks.spent_ns = 0

    probe.hooks.on_import("torch.fx.traceback", patch, NAME)
    probe.on_exit("anomaly", say)
    probe.on_fork("anomaly", forked)
