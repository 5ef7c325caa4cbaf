"""Why a verdict about a run should not be trusted: too few steps that differ, or a machine others used."""

from __future__ import annotations

import numpy as np

from hotloop.diagnose.crowding import core_time_got, is_crowded, others_took
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.series import inside
from hotloop.stats import half_width
from hotloop.units import duration, share


def doubt(evidence: Evidence) -> str:
    """The reason as a clause; "" where there is none."""
    return _crowded(evidence) or _stolen(evidence) or _few(evidence)


def _crowded(evidence: Evidence) -> str:
    got = core_time_got(evidence, (evidence.steps.pid,))
    if not is_crowded(evidence) or got > evidence.limits.got_ratio:
        return ""
    taken, cores = others_took(evidence), evidence.cores
    return (
        f"other programs kept {taken:.1f} of {cores:g} cores busy, and the training thread got "
        f"{share(got)} of the core time it wanted"
    )


def _stolen(evidence: Evidence) -> str:
    """Time that the hypervisor gave to other machines."""
    _, seen = evidence.sampled(None, "steal_ratio")
    ratio = float(seen.mean()) if len(seen) else 0.0
    if ratio < evidence.limits.stolen_ratio:
        return ""
    return f"the machine under this virtual one took {share(ratio)} of its cores' time"


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
