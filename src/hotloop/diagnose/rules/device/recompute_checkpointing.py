"""Activations are recomputed although memory is free."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough, phase_interval
from hotloop.diagnose.device_state import device_bound, device_s, memory_ratio
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import trained_modules
from hotloop.diagnose.memory_use import run_ratio
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost, Steps
from hotloop.units import duration, share

ID = "device/recompute-checkpointing"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Gradient checkpointing in a run bound by its device that uses less than half of the device's memory."""
    if enough(evidence) and any(m.get("checkpointing") for m in trained_modules(evidence.steps)):
        yield from _assumed(evidence) if evidence.on_accelerator else _sampled(evidence)


def _assumed(evidence: Evidence) -> Iterable[Finding]:
    """On an accelerator, where nobody sees what is computed twice."""
    limits, memory = evidence.limits, memory_ratio(evidence)
    if memory is None or memory >= limits.recompute_memory_ratio or not device_bound(evidence):
        return
    yield _told(
        evidence,
        memory,
        cost_s=limits.recompute_costs_ratio * device_s(evidence),
        numbers=[
            f"peak memory {share(memory)} of the device",
            f"saving assumed, not measured: {share(limits.recompute_costs_ratio)} of device time",
        ],
        data={"assumed": True},
    )


def _sampled(evidence: Evidence) -> Iterable[Finding]:
    """On a CPU, where forwards are sampled within backward."""
    steps, limits, memory = evidence.steps, evidence.limits, run_ratio(evidence)
    again = _again(steps)
    if memory is None or memory >= limits.recompute_memory_ratio:
        return
    if sum(line.num_samples for line in again) < limits.recompute_samples:
        return
    cost_s = sum(line.seconds for line in again) / max(1, steps.num_steps)
    yield _told(
        evidence,
        memory,
        cost_s=cost_s,
        numbers=[
            f"the run took at most {share(memory)} of the memory it may use",
            f"{duration(cost_s)} per step in forwards that backward runs again",
        ],
        where=max(again, key=lambda line: line.seconds).place,
        ci95=phase_interval(steps, cost_s, "backward"),
    )


def _told(
    evidence: Evidence,
    memory: float,
    *,
    cost_s: float,
    numbers: list[str],
    where: Place | None = None,
    ci95: tuple[float, float] | None = None,
    data: dict[str, bool] | None = None,
) -> Finding:
    return cause(
        evidence,
        ID,
        message=f"Gradient checkpointing computes forward twice{at(where)} while {share(1 - memory)} of "
        "memory is free.",
        advice="Switch checkpointing off, or use it for the largest stages only.",
        numbers=numbers,
        cost_s=cost_s,
        where=where,
        ci95=ci95,
        remedies=("no-checkpointing",),
        data={"effect": "numeric", **(data or {})},
    )


def _again(steps: Steps) -> list[LineCost]:
    """Lines of forwards that were sampled within backward. A function that a backward of the user's own calls
    (of a ``torch.autograd.Function``) is none, whether the forward beside it calls it as well.
    """
    forward = {_function(place) for line in steps.lines if line.phase == "forward" for place in _way(line)}
    return [
        line
        for line in steps.lines
        if line.phase == "backward"
        and line.statement != line.place
        and all(_function(place) in forward for place in _way(line))
    ]


def _way(line: LineCost) -> Iterable[Place]:
    """The places a line was reached through, itself first, as far as known, below the loop's statement."""
    return takewhile(lambda place: place != line.statement, (line.place, *line.callers))


def _function(place: Place) -> tuple[str, str]:
    return (place.file, place.function)
