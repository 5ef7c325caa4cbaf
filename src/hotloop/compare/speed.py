"""How many times faster the candidate is, with an interval.

One launch of each: Welch's interval on the logarithm of the ratio of means, from means of blocks of steps.
What two launches differ in besides (FIELDNOTES 3.0: the same two gave 1.51 and 3.10 on a shared machine) is
not in it, and ``launches`` says so. Several launches of each: every launch is one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, inf, sqrt
from typing import NamedTuple

import numpy as np

from hotloop.compare.run import Run
from hotloop.measure.stepping import block_means
from hotloop.measure.steps import Floats, Steps, core_time_got, others_cores, span_s
from hotloop.stats import standard_error, t95, welch
from hotloop.units import duration

#: Part of the machine that others may use before a ratio of two launches is in doubt.
_CROWDED = 0.1

ONE_LAUNCH = (
    "one launch of each: the interval does not hold what the machine did differently between them; "
    "repeat the launches (--repeats) where it is shared"
)
NOT_ALONE = "the ratio is not that of the change alone"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """``ratio`` above 1: the candidate is faster. ``of`` is what is counted: samples, or steps.

    ``doubt``: others were on the machine, and one launch of a side cannot tell them from the change.
    """

    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    base_per_s: float | None = None
    candidate_per_s: float | None = None
    of: str
    launches: int = 0  # of the side with fewer
    words: str = ""
    doubt: bool = False


def speed(base: Sequence[Run], candidate: Sequence[Run]) -> Speed:
    """Compare the training spans from the first steady step to the last, everything between steps in it."""
    by_samples = all(samples_per_step(run.ranks) for run in (*base, *candidate))
    of = "samples" if by_samples else "steps"
    a, b = (_pace(side, by_samples) for side in (base, candidate))
    if a is None or b is None:
        return Speed(of=of, words="too few steady steps for a rate")
    ratio, half = _ratio(a, b)
    launches = min(len(base), len(candidate))
    doubt = launches == 1 and bool(crowd(base[0], candidate[0]))
    # What others took of the cores may be all of a difference, or hide one.
    taken = core_time(base[0]) / core_time(candidate[0]) if doubt else 1.0
    low, high = min(1.0, taken), max(1.0, taken)
    return Speed(
        ratio=ratio,
        ci95=(ratio * exp(-half) * low, ratio * exp(half) * high) if half < 5 else None,
        base_per_s=1 / a.mean_s,
        candidate_per_s=1 / b.mean_s,
        of=of,
        launches=launches,
        words="" if launches > 1 else ONE_LAUNCH,
        doubt=doubt,
    )


def crowd(*runs: Run) -> str:
    """What others did on the machine while these trained, where that tells on their times; "" for little."""
    told = (
        others_cores(run.recording.node_of(run.lead.pid), *span_s(run.recording, run.process, run.lead))
        for run in runs
    )
    busy = [cores for cores in told if cores is not None]
    cores = float(runs[0].recording.machine.get("cpu_count") or 1)
    if max(busy, default=0.0) < _CROWDED * cores:
        return ""
    return f"others kept {' and '.join(f'{one:.1f}' for one in busy)} of {cores:g} cores busy meanwhile"


def crowded(base: Run, candidate: Run) -> str:
    """What others did meanwhile, and the core time of both training threads where none waits for another."""
    if not (others := crowd(base, candidate)):
        return ""
    before, after = map(_computed, (base, candidate))
    alone = all((run.lead.facts.get("torch") or {}).get("threads") == 1 for run in (base, candidate))
    if before is None or after is None or not alone:
        return f"{others}: {NOT_ALONE}"
    ratio, half = _ratio(before, after)
    edges = f" [{ratio * exp(-half):.2f}, {ratio * exp(half):.2f}]" if half < 5 else ""
    spent = f"{duration(before.mean_s)} and {duration(after.mean_s)} a step"
    return f"{others}: {NOT_ALONE}; the training threads computed {spent}, a ratio of {ratio:.2f}{edges}"


def _computed(run: Run) -> _Pace | None:
    """Seconds per step that the training thread had a core; None where too little was sampled."""
    columns, lead = run.recording.process_system.get(run.lead.pid, {}), run.lead
    if "main_cpu_s" not in columns:
        return None
    at, computed = (run.while_training(columns["t_s"], columns[name]) for name in ("t_s", "main_cpu_s"))
    if at is None or computed is None or len(at) != len(computed):
        return None
    edges = _edges(lead) + span_s(run.recording, run.process, lead)[0] - lead.span[0]
    return _of_launch(np.diff(np.interp(edges, at, computed))[(edges[:-1] >= at[0]) & (edges[1:] <= at[-1])])


def core_time(run: Run) -> float:
    """What others on the machine left of the core time that the training thread wanted; 1 for all of it."""
    if not crowd(run):
        return 1.0
    sampled = run.recording.process_system.get(run.lead.pid, {})
    return core_time_got([sampled], *span_s(run.recording, run.process, run.lead))


def samples_per_step(ranks: Sequence[Steps]) -> float | None:
    """Samples per step over all ranks, None where they cannot be told."""
    known = [steps.samples[np.isfinite(steps.samples)] for steps in ranks if steps.num_steps]
    return sum(float(one.mean()) for one in known) or None if all(map(len, known)) else None


def per_s(*runs: Run) -> tuple[float | None, tuple[float, float] | None]:
    """Steps per second of launches of the same, with the interval."""
    pace = _pace(runs, False)
    if pace is None:
        return None, None
    half = t95(max(1, pace.freedom)) * pace.error
    return 1 / pace.mean_s, (exp(-half) / pace.mean_s, exp(half) / pace.mean_s)


def samples_per_s(*runs: Run) -> float | None:
    """Samples per second of launches of the same over all ranks."""
    pace = _pace(runs, True) if all(samples_per_step(run.ranks) for run in runs) else None
    return 1 / pace.mean_s if pace is not None else None


def _ratio(a: _Pace, b: _Pace) -> tuple[float, float]:
    """How many times faster the second is, and half of the 95 % interval of its logarithm.

    Launches of one command on one machine: the noise of both sides is taken as one.
    """
    if min(a.launches, b.launches) > 1:
        together = a.freedom + b.freedom
        variance = sum(one.freedom * one.launches * one.error**2 for one in (a, b)) / together
        half = t95(together) * sqrt(variance * (1 / a.launches + 1 / b.launches))
        return a.mean_s / b.mean_s, half
    freedom = welch(a.error, a.freedom, b.error, b.freedom)
    half = t95(max(1, int(freedom))) * hypot(a.error, b.error) if min(a.freedom, b.freedom) > 0 else inf
    return a.mean_s / b.mean_s, half


class _Pace(NamedTuple):
    """Seconds per unit of one side: the mean, its standard error relative to it, degrees of freedom; of how
    many launches.
    """

    mean_s: float
    error: float
    freedom: int
    launches: int = 1


def _edges(lead: Steps) -> Floats:
    """The starts of steps and the last one's end, so that epoch gaps, evaluations and checkpoints count, in
    seconds; without the warm-up.
    """
    steady = np.flatnonzero(lead.steady)
    first = int(steady[0]) if len(steady) else 0
    return np.append(lead.start_s[first:], lead.end_s[-1])


def _of_launch(seconds: Floats) -> _Pace | None:
    """The pace of one launch from its steps; None with too few of them, or where they took no time."""
    means = block_means(seconds)
    mean_s = float(seconds.mean()) if len(means) else 0.0
    return _Pace(mean_s, standard_error(means) / mean_s, len(means) - 1) if mean_s > 0 else None


def _pace(runs: Sequence[Run], by_samples: bool) -> _Pace | None:
    paces = []
    for run in runs:
        seconds = np.diff(_edges(run.lead))
        seconds /= (samples_per_step(run.ranks) or 1.0) if by_samples else 1.0
        if (pace := _of_launch(seconds)) is None:
            return None
        paces.append(pace)
    if len(paces) == 1:
        return paces[0]
    logs = np.log([pace.mean_s for pace in paces])
    return _Pace(float(np.exp(logs.mean())), standard_error(logs), len(logs) - 1, len(logs))
