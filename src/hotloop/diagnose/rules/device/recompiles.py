"""torch.compile compiles again and again while training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.units import duration, share

ID = "device/recompiles"

#: The first steps compile forward, backward and the optimizer, and once more for dynamic shapes.
_WARMUP_STEPS = 3


def check(evidence: Evidence) -> Iterable[Finding]:
    """Compilations in several steps after the first few: the excess of those steps over the others."""
    steps = evidence.steps
    later = sorted({step for step in steps.compiles_at if step >= _WARMUP_STEPS})
    if len(later) < evidence.limits.recompiling_steps or not enough(evidence):
        return
    excess = min(_excess_s(steps, later), steps.compile_s)
    cost = excess / steps.num_steps
    if cost <= 0:
        return
    note = steps.facts.get("compile")
    count = note.get("recompiles") if isinstance(note, Mapping) else None
    yield cause(
        evidence,
        ID,
        message=(
            f"torch.compile compiled again in {len(later)} steps after the warm-up: "
            f"{duration(excess / len(later))} each, {share(cost / steps.step_s)} of the training time."
        ),
        advice="Pad to fixed shapes or compile with dynamic=True; keep changing numbers out of forward.",
        numbers=[
            f"compiled in steps {', '.join(map(str, later[:10]))}{' ...' if len(later) > 10 else ''}",
            f"{duration(steps.compile_s)} of compilation in the training span",
            *([f"{count} recompilations counted by torch"] if count else []),
        ],
        cost_s=cost,
        where=steps.source_loop,
        remedies=("compile-dynamic",),
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
