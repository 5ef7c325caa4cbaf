"""Recording -> Steps: what happened becomes where the time went. numpy only, never torch."""

from __future__ import annotations

from hotloop.measure.measure import measure

__all__ = ["measure"]
