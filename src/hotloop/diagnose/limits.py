"""Every threshold of the diagnosis in one place, each with the source it comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Thresholds. Shares are of the training span."""

    #: Fewer steady steps than this say nothing about a rate (central limit: the interval is wider than most effects).
    min_steps: int = 8
    #: A shorter training span is dominated by start-up.
    min_span_s: float = 0.3
    #: Below this share a cause is not worth a person's time; findings under it are info or silent.
    worth_fixing_ratio: float = 0.05
    #: Severity by share of wall time.
    high_ratio: float = 0.30
    medium_ratio: float = 0.10
