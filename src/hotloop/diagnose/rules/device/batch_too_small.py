"""The batch is too small to keep the device busy, and memory for a larger one is there."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import launching_idle_s, memory_ratio
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/batch-too-small"


def check(evidence: Evidence) -> Iterable[Finding]:
    """A launch-bound device with most of its memory free; the seconds are those of ``host/launch-bound``."""
    steps, limits = evidence.steps, evidence.limits
    memory = memory_ratio(evidence)
    if not evidence.on_accelerator or not enough(evidence) or memory is None:
        return
    idle = launching_idle_s(steps) / steps.span_s
    loader = steps.train_loader()
    batch = loader.settings.get("batch_size") if loader else None
    if (
        idle < limits.launch_bound_ratio
        or memory > limits.small_batch_memory_ratio
        or not isinstance(batch, int)
    ):
        return
    yield cause(
        evidence,
        ID,
        message=f"A batch of {batch} leaves the device idle {share(idle)} of the time and most memory free.",
        advice=f"Try batch_size={2 * batch} with the learning rate scaled along; it changes the training.",
        numbers=[f"peak memory {share(memory)} of the device", f"idle while launching {share(idle)}"],
        severity="low",
        where=loader.where if loader else None,
        remedies=("batch-size",),
        data={"effect": "semantic", "batch_size": batch},
    )
