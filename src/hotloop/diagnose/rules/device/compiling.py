"""torch.compile cuts the model into pieces, or compiles again and again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop.diagnose.device_state import launching_idle_s
from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.facts import noted
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.units import duration, share

#: The first steps compile forward, backward and the optimizer, and once more for dynamic shapes.
_WARMUP_STEPS = 3


@rule("device/graph-breaks", short_runs=True)
def graph_breaks(evidence: Evidence) -> Iterator[Finding]:
    """Graph breaks with their reasons; a cost is only claimed by the idle device of a launch-bound run."""
    steps, limits = evidence.steps, evidence.limits
    count = steps.graph_breaks
    if count <= 0:
        return
    reasons = (noted(steps, "compile").get("graph_breaks") or {}).items()
    bound = launching_idle_s(steps) >= limits.launch_bound_ratio * steps.span_s > 0
    yield cause(
        evidence,
        message=f"torch.compile leaves the graph in {count} place{'s' if count > 1 else ''}: "
        "Python runs there, and nothing is fused across.",
        numbers=[
            f"{number} x {str(reason).strip().partition(chr(10))[0][:160] or 'unknown reason'}"
            for reason, number in sorted(reasons, key=lambda item: -int(item[1]))[:5]
        ]
        or [f"{count} graph breaks"],
        severity="low" if bound and evidence.on_accelerator else "info",
        data={"graph_breaks": count},
    )


@rule("device/recompiles")
def recompiles(evidence: Evidence) -> Iterator[Finding]:
    """Compilations in several steps after the first few: the excess of those steps over the others."""
    steps = evidence.steps
    later = sorted({step for step in steps.compiles_at if step >= _WARMUP_STEPS})
    if len(later) < evidence.limits.recompiling_steps:
        return
    excess = min(_excess_s(steps, later), steps.compile_s)
    cost = excess / steps.num_steps
    if cost <= 0:
        return
    count = noted(steps, "compile").get("recompiles")
    yield cause(
        evidence,
        message=(
            f"torch.compile compiled again in {len(later)} steps after the warm-up: "
            f"{duration(excess / len(later))} each, {share(cost / steps.step_s)} of the training time."
        ),
        numbers=[
            f"compiled in steps {', '.join(map(str, later[:10]))}{' ...' if len(later) > 10 else ''}",
            f"{duration(steps.compile_s)} of compilation in the training span",
            *([f"{count} recompilations counted by torch"] if count else []),
        ],
        cost_s=cost,
        where=steps.source_loop,
        data={"steps": later[:100]},
    )


def _excess_s(steps: Steps, compiling: list[int]) -> float:
    """How much longer the compiling steps took than the median of the others."""
    lengths = steps.end_s - steps.start_s
    inside = [step for step in compiling if step < len(lengths)]
    others = np.delete(lengths, sorted({s for s in steps.compiles_at if s < len(lengths)}))
    if not inside or not len(others):
        return steps.compile_s  # every step compiles: all of it is what removing the cause saves
    return float(np.maximum(0.0, lengths[inside] - np.median(others)).sum())
