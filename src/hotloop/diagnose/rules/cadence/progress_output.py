"""Printing progress takes time in every step."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.logging_split import draws_bars, finding_of_part, prints
from hotloop.findings import Finding
from hotloop.measure.steps import Steps

ID = "cadence/progress-output"


def check(evidence: Evidence) -> Iterable[Finding]:
    """``print``, tqdm and terminal output."""
    yield from finding_of_part(
        evidence,
        ID,
        "progress",
        what="Printing progress",
        advice="Print every N steps, or give the progress bar mininterval=1 and set its postfix rarely.",
        remedies=_remedies(evidence.steps),
    )


def _remedies(steps: Steps) -> tuple[str, ...]:
    bars = ("throttled-progress",) if draws_bars(steps) or not prints(steps) else ()
    return (*bars, *(("fewer-prints",) if prints(steps) else ()))
