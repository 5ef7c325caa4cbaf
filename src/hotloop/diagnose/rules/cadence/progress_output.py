"""Printing progress takes time in every step."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.logging_split import finding_of_part
from hotloop.findings import Finding

ID = "cadence/progress-output"


def check(evidence: Evidence) -> Iterable[Finding]:
    """``print``, tqdm and terminal output."""
    yield from finding_of_part(
        evidence,
        ID,
        "progress",
        what="Printing progress",
        advice="Print every N steps, or give the progress bar mininterval=1 and set its postfix rarely.",
        remedies=("throttled-progress",),
    )
