"""Why a verdict about a run should not be trusted: too few steps that differ, or a machine others used."""

from __future__ import annotations

import numpy as np

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.series import inside
from hotloop.stats import half_width
from hotloop.units import duration, share


def doubt(evidence: Evidence) -> str:
    """The reason as a clause; "" where there is none."""
    return _crowded(evidence) or _stolen(evidence) or _few(evidence)


def crowded(evidence: Evidence) -> bool:
    """Whether other programs kept the training thread from the cores it wanted."""
    return evidence.crowded and evidence.got <= evidence.limits.got_ratio


def _crowded(evidence: Evidence) -> str:
    if not crowded(evidence):
        return ""
    return (
        f"other programs kept {evidence.others_cores:.1f} of {evidence.cores:g} cores busy, and the training "
        f"thread got {share(evidence.got)} of the core time it wanted"
    )


def _stolen(evidence: Evidence) -> str:
    if evidence.stolen < evidence.limits.stolen_ratio:
        return ""
    return f"the machine under this virtual one took {share(evidence.stolen)} of its cores' time"


def _few(evidence: Evidence) -> str:
    """Steps so few and so different that their mean is not known to a quarter."""
    steps, limits = evidence.steps, evidence.limits
    seconds = inside(steps)[np.asarray(steps.steady, bool)]
    if len(seconds) < 2 or len(seconds) >= limits.few_steps:
        return ""
    mean = float(seconds.mean())
    if mean <= 0 or half_width(seconds) / mean <= limits.few_steps_ratio:
        return ""
    low, high = duration(float(seconds.min())), duration(float(seconds.max()))
    return f"its {len(seconds)} steps after the first took from {low} to {high}"
