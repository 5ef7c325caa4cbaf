"""How a rule states a cause: seconds of the training span as cost per step, share and places in words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import ENTRIES, Finding, Place, Severity
from hotloop.measure.steps import Interval, SiteCost, Steps
from hotloop.source.written import Written

#: Of what is done so often in a run at least this many times are left, whatever they take.
_STAY = 4


def cause(
    evidence: Evidence,
    finding_id: str,
    *,
    message: str,
    numbers: Iterable[str],
    advice: str = "",
    cost_s: float = 0.0,
    where: Place | None = None,
    ci95: tuple[float, float] | None = None,
    severity: Severity | None = None,
    remedies: tuple[str, ...] | None = None,
    data: Mapping[str, Any] | None = None,
) -> Finding:
    """A finding on the rank spoken about. ``cost_s`` is in seconds per step, not negative.

    ``advice`` and ``remedies`` that are not given are those of the finding's id.

    A ``severity`` given here is kept as it is (``severity_fixed``): for causes whose cost is not time.
    """
    steps, home = evidence.steps, ENTRIES[finding_id]
    cost = max(0.0, cost_s)
    facts = dict(data or {})
    if severity is not None:
        facts["severity_fixed"] = True
    return Finding(
        id=finding_id,
        message=message,
        advice=advice or home.advice,
        evidence=tuple(numbers),
        cost_s_per_step=cost,
        cost_ci95=ci95,
        share=cost / steps.step_s if steps.step_s > 0 else 0.0,
        severity=severity or "info",
        where=where,
        remedies=home.remedies if remedies is None else remedies,
        rank=steps.rank if len(evidence.ranks) > 1 else None,
        data=facts,
    )


def spot(place: Place | None) -> str:
    """A place in a sentence: ``train.py:41``, "" when unknown."""
    return f"{PurePath(place.file).name}:{place.line}" if place else ""


def calls_of(steps: Steps, site: SiteCost) -> str:
    """Where something was called how often: ``train.py:41: all_reduce, 2 per step``."""
    often = f"{site.count / steps.num_steps:.2g} per step"
    return f"{spot(site.place) or 'unknown place'}: {site.operation}, {often}"


def reachable(place: Place, function: str) -> str | None:
    """A function as live forms want it named, ``train.py:Head.targets``; None where none is of that name."""
    return f"{PurePath(place.file).name}:{function}" if function and "<" not in function else None


def decided(by: Written) -> str:
    """What put a value in effect: ``data.py:18 num_workers=2``."""
    return f"{spot(Place(file=by.file, line=by.line))} {by.text}" if by.file else by.text


def at(place: Place | None) -> str:
    """`` at train.py:41``, "" when unknown."""
    return f" at {spot(place)}" if place else ""


def in_framework(steps: Steps, place: Place | None) -> bool:
    """Whether a place is the line in which a framework runs the whole training: none of the user's code."""
    call = steps.framework_call
    return call is not None and place is not None and place.at_line == call.at_line


def rarer(steps: Steps, seconds: float, count: int, free_ratio: float) -> int:
    """Done one time in 2, 5, 10, 20, ..., what now takes these seconds over the span takes the free share of
    it; a few of the ``count`` times stay.
    """
    rest_s = max(1e-9, steps.span_s - seconds)
    wanted = max(2.0, seconds * (1 - free_ratio) / (free_ratio * rest_s))
    most = max(2.0, count / _STAY)
    if wanted <= most:
        rounded = next(number for number in _rounded(wanted) if number >= wanted)
        if rounded <= most:
            return rounded
    return max(number for number in _rounded(most) if number <= most)


def _rounded(number: float) -> list[int]:
    """1, 2, 5 and 10 times the power of ten below a number."""
    unit = 10 ** math.floor(math.log10(number))
    return [unit * part for part in (1, 2, 5, 10)]


def beyond(steps: Steps, seconds: float, free_ratio: float) -> float:
    """Seconds per step of ``seconds`` (over the span) beyond a share of the span that is fair to spend."""
    return max(0.0, seconds - free_ratio * steps.span_s) / max(1, steps.num_steps)


def steps_between(steps: Steps, intervals: Sequence[Interval]) -> float:
    """Steps from one evaluation or checkpoint to the next: the median; of a single one all steps."""
    gaps = np.diff(sorted(interval.after_step for interval in intervals))
    gaps = gaps[gaps > 0]
    return float(np.median(gaps)) if len(gaps) else steps.num_steps / max(1, len(intervals))
