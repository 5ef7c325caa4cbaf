"""Anomaly detection of autograd: what recording a stack for every operation of forward takes."""

from __future__ import annotations

from _thread import get_ident
from typing import Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.probe import Probe

NAME: Final = "observers.anomaly"


def install(probe: Probe) -> None:
    """Time the function that autograd asks for a stack, and write the sum at exit."""
    spent = [0, 0]  # stacks, and nanoseconds
    is_on = probe.torch.is_anomaly_enabled

    def patch(module: Any) -> None:
        def recorded(token: Any, start: int, stop: int, lines: Any) -> None:
            if lines is RAISED:
                return
            # torch leaves out the frame of the function itself: here the wrapper's goes in its place.
            if not getattr(module, "should_preserve_node_meta", False):
                del lines[-1:]
            if is_on() and get_ident() == probe.owner:
                spent[:] = spent[0] + 1, spent[1] + stop - start

        probe.hooks.around(module, "format_stack", NAME, lambda *called: called, recorded, any_thread=True)

    def say() -> None:
        if spent[0]:
            probe.note("anomaly", stacks=spent[0], seconds=spent[1] / 1e9)

    def forked() -> None:
        spent[:] = 0, 0

    probe.hooks.on_import("torch.fx.traceback", patch, NAME)
    probe.on_exit("anomaly", say)
    probe.on_fork("anomaly", forked)
