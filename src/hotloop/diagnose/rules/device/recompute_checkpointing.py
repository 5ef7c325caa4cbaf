"""Activations are recomputed although device memory is free."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s, memory_ratio
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import trained_modules
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/recompute-checkpointing"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Gradient checkpointing in a device-bound run that uses less than half of the device's memory."""
    steps, limits = evidence.steps, evidence.limits
    memory = memory_ratio(evidence)
    if not enough(evidence) or not device_bound(evidence) or memory is None:
        return
    if memory >= limits.recompute_memory_ratio or not any(
        m.get("checkpointing") for m in trained_modules(steps)
    ):
        return
    yield cause(
        evidence,
        ID,
        message=f"Gradient checkpointing computes forward twice while {share(1 - memory)} of memory is free.",
        advice="Switch checkpointing off, or use it for the largest stages only.",
        numbers=[
            f"peak memory {share(memory)} of the device",
            f"saving assumed, not measured: {share(limits.recompute_costs_ratio)} of device time",
        ],
        cost_s=limits.recompute_costs_ratio * device_s(evidence),
        remedies=("no-checkpointing",),
        data={"assumed": True, "effect": "numeric"},
    )
