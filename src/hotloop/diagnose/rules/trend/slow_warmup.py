"""``trend/slow-warmup``: the first steps take so much longer that it shows in the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.series import INSIDE, inside
from hotloop.findings import Finding

ID = "trend/slow-warmup"
COSTED = True


def check(evidence: Evidence) -> Iterator[Finding]:
    """Price the steps before the steady state; in a short run that is information only."""
    steps, limits = evidence.steps, evidence.limits
    if not costs.enough(evidence) or steps.steady.sum() < limits.min_steps:
        return
    first = int(np.argmax(steps.steady))
    if first == 0:
        return
    steady = {phase: float(np.median(steps.phase(phase)[steps.steady])) for phase in INSIDE}
    extra = {phase: float((steps.phase(phase)[:first] - steady[phase]).sum()) for phase in INSIDE}
    # The first batch has a finding of its own.
    extra.pop("data_wait")
    total = sum(extra.values())
    if total < limits.warmup_s or total < limits.medium_ratio * steps.span_s:
        return
    phase = max(extra, key=lambda name: extra[name])
    usual = float(np.median(inside(steps)[steps.steady]))
    fades = steps.span_s < limits.long_run_s
    yield Finding(
        id=ID,
        message=(
            f"The first {first} {'step takes' if first == 1 else 'steps take'} {units.duration(total)} more "
            "than "
            f"steady ones ({units.duration(usual)} each), most of it in {phase}."
        ),
        advice=(
            "Keep what is compiled or tuned for the next run (compile cache, fixed shapes), or warm up with "
            "one batch "
            "before what is timed."
        ),
        evidence=(
            f"{units.duration(extra[phase])} of it in {phase}",
            f"{units.share(total / steps.span_s)} of a training span of {units.duration(steps.span_s)}; "
            "it fades in a longer run",
            *((f"torch.compile took {units.duration(steps.compile_s)}",) if steps.compile_s else ()),
        ),
        cost_s_per_step=total / steps.num_steps,
        where=steps.source_loop,
        data={"steps": first, "phase": phase, **({"severity_fixed": True} if fades else {})},
    )
