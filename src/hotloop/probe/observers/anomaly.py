"""Anomaly detection of autograd: what recording a stack for every operation of forward takes."""

from __future__ import annotations

from _thread import get_ident
from typing import TYPE_CHECKING, Any, Final

from hotloop.clock import now_ns
from hotloop.hooks.wrapping import compile_beside

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.anomaly"

#: The stack that torch takes lacks the frame of the function itself, and has this one in its place.
_FORMAT = """
def {name}():
    start = now()
    lines = original()
    return recorded(lines, start)
"""


class Stacks:
    """Counts the stacks that were recorded and their time."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._is_on = probe.torch.is_anomaly_enabled
        self.count = 0
        self.spent_ns = 0

    def make(self, module: Any, original: Any) -> Any:
        """The wrapper of ``torch.fx.traceback.format_stack``."""

        def recorded(lines: list[str], start: int) -> list[str]:
            if not getattr(module, "should_preserve_node_meta", False):
                del lines[-1:]  # the wrapper's
            if self._is_on() and get_ident() == self._probe.owner:
                self.count += 1
                self.spent_ns += now_ns() - start
            return lines

        return compile_beside(original, _FORMAT, recorded=recorded, now=now_ns)


def install(probe: Probe) -> None:
    """Time the function that autograd asks for a stack, and write the sum at exit."""
    stacks = Stacks(probe)

    def patch(module: Any) -> None:
        probe.hooks.patch(module, "format_stack", lambda original: stacks.make(module, original))

    def say() -> None:
        if stacks.count:
            probe.note("anomaly", stacks=stacks.count, seconds=stacks.spent_ns / 1e9)

    def forked() -> None:
        stacks.count = stacks.spent_ns = 0

    probe.hooks.on_import("torch.fx.traceback", patch, NAME)
    probe.on_exit("anomaly", say)
    probe.on_fork("anomaly", forked)
