"""Starts the blocks in an observed process; the plan is in ``HOTLOOP_WHAT_IF``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotloop.whatif.live.echo import Echo
from hotloop.whatif.live.session import Session

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe


def install(probe: Probe, plan: dict[str, Any]) -> None:
    """``plan``: interventions, board (file), budget_s, width (half of the interval), go_on; or ``echo``."""
    (Echo(probe) if plan.get("echo") else Session(probe, plan)).install()
