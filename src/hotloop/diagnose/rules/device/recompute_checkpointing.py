"""Activations are recomputed although memory is free."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from hotloop.diagnose.costs import phase_interval
from hotloop.diagnose.device_state import device_bound, device_s, memory_ratio
from hotloop.diagnose.evidence import Evidence, at, cause, rule
from hotloop.diagnose.facts import trained_modules
from hotloop.diagnose.memory_use import run_ratio
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost, Steps
from hotloop.units import duration, share


@rule("device/recompute-checkpointing")
def check(evidence: Evidence) -> Iterable[Finding]:
    """Gradient checkpointing in a run that uses less than half of the memory. On a CPU forwards are sampled
    within backward; on an accelerator, where nobody sees what is computed twice, the cost is assumed.
    """
    steps, limits, device = evidence.steps, evidence.limits, evidence.on_accelerator
    memory = memory_ratio(evidence) if device else run_ratio(evidence)
    if not any(m.get("checkpointing") for m in trained_modules(steps)):
        return
    if memory is None or memory >= limits.recompute_memory_ratio:
        return
    again = [] if device else _again(steps)
    enough = sum(line.num_samples for line in again) >= limits.recompute_samples
    if not (device_bound(evidence) if device else enough):
        return
    assumed = limits.recompute_costs_ratio
    cost = assumed * device_s(evidence) if device else sum(one.seconds for one in again) / steps.num_steps
    where = max(again, key=lambda line: line.seconds).place if again else None
    yield cause(
        evidence,
        message=f"Gradient checkpointing computes forward twice{at(where)} while {share(1 - memory)} of "
        "memory is free.",
        numbers=[
            f"peak memory {share(memory)} of the device",
            f"saving assumed, not measured: {share(assumed)} of device time",
        ]
        if device
        else [
            f"the run took at most {share(memory)} of the memory it may use",
            f"{duration(cost)} per step in forwards that backward runs again",
        ],
        cost_s=cost,
        where=where,
        ci95=None if device else phase_interval(steps, cost, "backward"),
        data={"effect": "numeric", **({"assumed": True} if device else {})},
    )


def _again(steps: Steps) -> list[LineCost]:
    """Lines of forwards that were sampled within backward. A function that a backward of the user's own calls
    (of a ``torch.autograd.Function``) is none, whether the forward beside it calls it as well.
    """
    forward = {place.in_function for line in steps.lines if line.phase == "forward" for place in _way(line)}
    return [
        line
        for line in steps.lines
        if line.phase == "backward"
        and line.statement != line.place
        and all(place.in_function in forward for place in _way(line))
    ]


def _way(line: LineCost) -> Iterable[Place]:
    """The places a line was reached through, itself first, as far as known, below the loop's statement."""
    return takewhile(lambda place: place != line.statement, (line.place, *line.callers))
