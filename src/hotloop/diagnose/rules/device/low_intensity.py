"""The device is occupied all the time and does little."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, power_ratio
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/low-intensity"

#: A device that computes draws well over half of its power limit; one that moves small tensors does not.
_POWER_RATIO = 0.35


def check(evidence: Evidence) -> Iterable[Finding]:
    """A busy device far below its power limit: small or memory-bound kernels, not arithmetic."""
    drawn = power_ratio(evidence)
    if not enough(evidence) or not device_bound(evidence) or drawn is None or drawn >= _POWER_RATIO:
        return
    yield cause(
        evidence,
        ID,
        message=f"The device is busy but draws only {share(drawn)} of its power limit.",
        advice="Larger batches, fused kernels (torch.compile) or several runs on one device use it better.",
        numbers=[f"power {share(drawn)} of the limit in the run's second half"],
        severity="info",
    )
