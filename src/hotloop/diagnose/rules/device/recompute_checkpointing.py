"""Activations are recomputed although memory is free."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough, phase_interval
from hotloop.diagnose.device_state import device_bound, device_s, memory_ratio
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import trained_modules
from hotloop.diagnose.memory_use import limit_bytes, run_bytes
from hotloop.findings import Finding
from hotloop.measure.steps import LineCost, Steps
from hotloop.units import duration, share

ID = "device/recompute-checkpointing"
#: Fewer samples of a forward within backward than this do not say what it takes.
LEAST_SAMPLES = 8


def check(evidence: Evidence) -> Iterable[Finding]:
    """Gradient checkpointing in a run bound by its device that uses less than half of the device's memory.

    On an accelerator what it costs is assumed. On a CPU the forwards within backward are sampled.
    """
    steps, limits = evidence.steps, evidence.limits
    memory = memory_ratio(evidence) if evidence.on_accelerator else _host_ratio(evidence)
    if not enough(evidence) or memory is None or memory >= limits.recompute_memory_ratio:
        return
    if not any(m.get("checkpointing") for m in trained_modules(steps)):
        return
    again = [] if evidence.on_accelerator else _again(steps)
    if evidence.on_accelerator:
        if not device_bound(evidence):
            return
        cost_s = limits.recompute_costs_ratio * device_s(evidence)
        told = f"saving assumed, not measured: {share(limits.recompute_costs_ratio)} of device time"
        peak = f"peak memory {share(memory)} of the device"
    else:
        if sum(line.num_samples for line in again) < LEAST_SAMPLES:
            return
        cost_s = sum(line.seconds for line in again) / max(1, steps.num_steps)
        told = f"{duration(cost_s)} per step in forwards that backward runs again"
        peak = f"the run took at most {share(memory)} of the memory it may use"
    place = max(again, key=lambda line: line.seconds).place if again else None
    yield cause(
        evidence,
        ID,
        message=f"Gradient checkpointing computes forward twice{at(place)} while {share(1 - memory)} of "
        "memory is free.",
        advice="Switch checkpointing off, or use it for the largest stages only.",
        numbers=[peak, told],
        cost_s=cost_s,
        where=place,
        ci95=phase_interval(steps, cost_s, "backward") if again else None,
        remedies=("no-checkpointing",),
        data={"effect": "numeric"} | ({} if again else {"assumed": True}),
    )


def _host_ratio(evidence: Evidence) -> float | None:
    """Peak of the run's memory as a share of what it may use; None when unknown."""
    used, most = run_bytes(evidence), limit_bytes(evidence)
    return used / most if used > 0 and most else None


def _again(steps: Steps) -> list[LineCost]:
    """Lines of forwards that were sampled within backward."""
    forward = {(line.place.file, line.place.function) for line in steps.lines if line.phase == "forward"}
    return [
        line
        for line in steps.lines
        if line.phase == "backward"
        and (line.place.file, line.place.function) in forward
        and line.statement != line.place
    ]
