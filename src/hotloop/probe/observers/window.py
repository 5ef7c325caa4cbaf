"""Opens the module window after a few updates, see ``probe.window``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotloop.probe.window import Window

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe


def install(probe: Probe) -> None:
    """Let the window count the updates."""
    window = Window(probe)
    probe.on_update("window", window.update)
    probe.on_second("window", window.reopen)
