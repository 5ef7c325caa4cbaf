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


def install(probe: Probe) -> None:
    """Time the function that autograd asks for a stack, and write the sum at exit."""
    spent = [0, 0]  # stacks, and nanoseconds
    is_on = probe.torch.is_anomaly_enabled

    def patch(module: Any) -> None:
        def recorded(lines: list[str], start: int) -> list[str]:
            if not getattr(module, "should_preserve_node_meta", False):
                del lines[-1:]  # the wrapper's
            if is_on() and get_ident() == probe.owner:
                spent[:] = spent[0] + 1, spent[1] + now_ns() - start
            return lines

        def make(original: Any) -> Any:
            return compile_beside(original, _FORMAT, recorded=recorded, now=now_ns)

        probe.hooks.patch(module, "format_stack", make)

    def say() -> None:
        if spent[0]:
            probe.note("anomaly", stacks=spent[0], seconds=spent[1] / 1e9)

    def forked() -> None:
        spent[:] = 0, 0

    probe.hooks.on_import("torch.fx.traceback", patch, NAME)
    probe.on_exit("anomaly", say)
    probe.on_fork("anomaly", forked)
