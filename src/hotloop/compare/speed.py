"""How many times faster the candidate is, with an interval.

One launch of each: Welch's interval on the logarithm of the ratio of means, from means of blocks of steps.
What two launches differ in besides (FIELDNOTES 3.0: the same two gave 1.51 and 3.10 on a shared machine) is
not in it, and ``launches`` says so. Several launches of each: every launch is one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log, sqrt

import numpy as np

from hotloop.compare.run import Run
from hotloop.measure import others
from hotloop.measure.blocks import block_means
from hotloop.measure.steps import Floats, Steps
from hotloop.stats import standard_error, t95, welch

#: Part of the machine that others may use before a ratio of two launches is in doubt.
_CROWDED = 0.1

ONE_LAUNCH = (
    "one launch of each: the interval does not hold what the machine did differently between them; "
    "repeat the launches (--repeats) where it is shared"
)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """``ratio`` above 1: the candidate is faster. ``of`` is what is counted: samples, or steps.

    ``doubt``: others were on the machine, and one launch of a side cannot tell them from the change.
    """

    ratio: float | None
    ci95: tuple[float, float] | None
    base_per_s: float | None
    candidate_per_s: float | None
    of: str
    launches: int  # of the side with fewer
    words: str = ""
    doubt: bool = False


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Seconds per unit of one side: the mean, its standard error relative to it, degrees of freedom."""

    mean_s: float
    error: float
    freedom: int


def speed(base: Sequence[Run], candidate: Sequence[Run]) -> Speed:
    """Compare the training spans from the first steady step to the last, everything between steps in it."""
    runs = [*base, *candidate]
    samples = [samples_per_step(run) for run in runs]
    by_samples = all(samples)
    of = "samples" if by_samples else "steps"
    paces = [_pace(side, by_samples) for side in (base, candidate)]
    if paces[0] is None or paces[1] is None:
        return Speed(
            ratio=None, ci95=None, base_per_s=None, candidate_per_s=None, of=of, launches=0,
            words="too few steady steps for a rate",
        )  # fmt: skip
    a, b = paces[0], paces[1]
    error = sqrt(a.error**2 + b.error**2)
    ratio = a.mean_s / b.mean_s
    freedom = welch(a.error, a.freedom, b.error, b.freedom)
    half = t95(max(1, int(freedom))) * error if min(a.freedom, b.freedom) > 0 else inf
    launches = min(len(base), len(candidate))
    return Speed(
        ratio=ratio,
        ci95=(exp(log(ratio) - half), exp(log(ratio) + half)) if half < 5 else None,
        base_per_s=1 / a.mean_s,
        candidate_per_s=1 / b.mean_s,
        of=of,
        launches=launches,
        words="" if launches > 1 else ONE_LAUNCH,
        doubt=launches == 1 and bool(crowded(base[0], candidate[0])),
    )


def others_cores(run: Run) -> float | None:
    """Cores that others than this command kept busy while it trained; None with too few samples."""
    return others.others_cores(run.recording, run.process, run.lead)


def crowded(base: Run, candidate: Run) -> list[str]:
    """What others did on the machine, where that tells on the ratio."""
    busy = [others_cores(run) for run in (base, candidate)]
    cores = float(base.recording.machine.get("cpu_count") or 1)
    if None in busy or max(one or 0.0 for one in busy) < _CROWDED * cores:
        return []
    told = f"{busy[0]:.1f} and {busy[1]:.1f} of {cores:g} cores"
    return [f"others kept {told} busy meanwhile: the ratio is not that of the change alone"]


def crowd(run: Run) -> str:
    """What others did on the machine while one run trained, where that tells on its times; "" for little."""
    busy, cores = others_cores(run), float(run.recording.machine.get("cpu_count") or 1)
    if busy is None or busy < _CROWDED * cores:
        return ""
    return f"others kept {busy:.1f} of {cores:g} cores busy meanwhile"


def samples_per_step(run: Run) -> float | None:
    """Samples per step over all ranks, None where they cannot be told."""
    total = 0.0
    for steps in run.ranks:
        known = steps.samples[np.isfinite(steps.samples)]
        if not len(known):
            return None
        total += float(known.mean())
    return total or None


def per_s(run: Run) -> tuple[float | None, tuple[float, float] | None]:
    """Steps per second of a run, with its interval."""
    pace = _pace([run], False)
    if pace is None:
        return None, None
    half = t95(max(1, pace.freedom)) * pace.error
    return 1 / pace.mean_s, (exp(-half) / pace.mean_s, exp(half) / pace.mean_s)


def samples_per_s(run: Run) -> float | None:
    """Samples per second of a run over all ranks."""
    samples, (steps, _) = samples_per_step(run), per_s(run)
    return samples * steps if samples and steps else None


def step_seconds(steps: Steps) -> Floats:
    """From start to start, so that epoch gaps, evaluations and checkpoints count; without the warm-up."""
    steady = np.flatnonzero(steps.steady)
    first = int(steady[0]) if len(steady) else 0
    edges = np.append(steps.start_s[first:], steps.end_s[-1])
    return np.diff(edges)


def _pace(runs: Sequence[Run], by_samples: bool) -> Pace | None:
    paces = []
    for run in runs:
        seconds = step_seconds(run.lead) / ((samples_per_step(run) or 1.0) if by_samples else 1.0)
        means = block_means(seconds)
        if not len(means) or seconds.mean() <= 0:
            return None
        error = standard_error(means) / float(seconds.mean())
        paces.append(Pace(mean_s=float(seconds.mean()), error=error, freedom=len(means) - 1))
    if len(paces) == 1:
        return paces[0]
    logs = np.log([pace.mean_s for pace in paces])
    return Pace(
        mean_s=float(np.exp(logs.mean())),
        error=standard_error(logs),
        freedom=len(logs) - 1,
    )
