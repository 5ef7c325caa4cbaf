"""Deterministic algorithms are switched on in a device-bound run."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.configured import wanted
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/deterministic-on"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Deterministic kernels on an accelerator; their cost is assumed small."""
    steps, limits = evidence.steps, evidence.limits
    on = [name for name in ("deterministic_algorithms", "cudnn_deterministic") if flag(steps, name)]
    if not on or not enough(evidence) or not device_bound(evidence):
        return
    meant = wanted(evidence, "deterministic")
    yield cause(
        evidence,
        ID,
        message=f"Deterministic algorithms are on ({', '.join(on)}): slower kernels, and no cudnn.benchmark.",
        advice="Switch them on for comparisons only, not for long runs.",
        numbers=[
            f"configured{f' in {meant.where}' if meant.where else ''}"
            if meant
            else "not found in the configuration",
            f"saving assumed, not measured: {share(limits.small_saves_ratio)} of device time",
        ],
        cost_s=limits.small_saves_ratio * device_s(evidence),
        severity="info" if meant else None,
        remedies=("not-deterministic",),
        data={"assumed": True, "effect": "numeric"},
    )
