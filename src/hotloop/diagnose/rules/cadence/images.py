"""Drawing and logging images or figures takes time in the training span."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.logging_split import finding_of_part
from hotloop.findings import Finding

ID = "cadence/images"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Figures drawn, images written or sent to a tracker between steps."""
    yield from finding_of_part(
        evidence,
        ID,
        "images",
        what="Drawing and logging images",
        advice="Draw images once per evaluation or every few hundred steps, small, or in another process.",
        remedies=("fewer-images",),
    )
