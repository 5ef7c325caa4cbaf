"""Logging numbers takes time in the training span."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.logging_split import finding_of_part
from hotloop.findings import Finding

ID = "cadence/logging"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Scalars, text, trackers and log lines; images and progress bars have their own rules."""
    yield from finding_of_part(
        evidence,
        ID,
        "logging",
        what="Logging",
        advice="Log every 50-100 steps, and keep running values as tensors until then.",
        remedies=("throttled-logging",),
    )
