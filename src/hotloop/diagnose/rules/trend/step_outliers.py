"""``trend/step-outliers``: rare steps take many times longer than the rest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.hotspots import quoted
from hotloop.diagnose.rollouts import rollout
from hotloop.diagnose.series import INSIDE, hottest_line, inside
from hotloop.findings import Finding

ID = "trend/step-outliers"
COSTED = True

#: On a CPU these are stretched by whatever else runs on the machine.
_COMPUTE = ("forward", "backward", "optimizer")


def check(evidence: Evidence) -> Iterator[Finding]:
    """Add up what rare steps take beyond the median, and name the phase it lies in."""
    steps, limits = evidence.steps, evidence.limits
    if not costs.enough(evidence) or int(steps.steady.sum()) < limits.outlier_min_steps:
        return
    times = inside(steps)
    median = float(np.median(times[steps.steady]))
    out = steps.steady & (times > limits.outlier_factor * median)
    if not 0 < out.mean() <= limits.outlier_steps_ratio:
        return
    usual = {phase: float(np.median(steps.phase(phase)[steps.steady & ~out])) for phase in INSIDE}
    excess = {phase: float((steps.phase(phase)[out] - usual[phase]).sum()) for phase in INSIDE}
    phase = max(excess, key=lambda name: excess[name])
    cost = excess[phase] / steps.num_steps
    elsewhere = phase == "logging" or (phase == "data_wait" and _by_input_rules(evidence))
    if elsewhere or cost < limits.worth_fixing_ratio * steps.step_s:
        return
    noisy = phase in _COMPUTE and not evidence.on_accelerator
    line = hottest_line(steps, phase)
    where = np.flatnonzero(out)
    yield Finding(
        id=ID,
        message=(
            f"{int(out.sum())} of {steps.num_steps} steps take {units.duration(float(times[out].mean()))} "
            "instead of "
            f"{units.duration(median)}, the time lies in {phase}."
        ),
        advice=_advice(noisy, _period(where)),
        evidence=(
            f"beyond the median they add {units.duration(float(sum(excess.values())))} to the run, "
            f"{units.duration(excess[phase])} of it in {phase}",
            f"steps {', '.join(str(i) for i in where[:6])}{' …' if len(where) > 6 else ''}",
            *(
                (f"garbage collection took {units.duration(steps.gc_s)} in {steps.gc_count} pauses",)
                if steps.gc_s
                else ()
            ),
            *((f"hottest line of {phase}: {says.at(line.place)}{quoted(line)}",) if line is not None else ()),
        ),
        cost_s_per_step=cost,
        severity="info",
        where=line.place if line is not None and not noisy else steps.source_loop,
        data={
            "phase": phase,
            "steps": [int(i) for i in where[:50]],
            **({"severity_fixed": True} if noisy else {}),
        },
    )


def _by_input_rules(evidence: Evidence) -> bool:
    """Whether rules of the input speak of a wait: a loader's, or of a rollout that several passes follow."""
    steps = evidence.steps
    made = [line for line in steps.lines if line.role == "input"]
    return steps.train_loader() is not None or rollout(evidence, made) is not None


def _period(where: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int | None:
    """The distance of outliers that come at equal distances."""
    gaps = np.diff(where)
    return int(gaps[0]) if len(gaps) >= 3 and (gaps == gaps[0]).all() and gaps[0] > 1 else None


def _advice(noisy: bool, period: int | None) -> str:
    if period is not None:
        return (
            f"Look at what the script does every {period} steps; do it less often, or outside the training "
            "loop."
        )
    if noisy:
        return "Look at what else runs on this machine: the compute itself was held up."
    return "Look at what the script does in those steps only, and move it out of the training loop."
