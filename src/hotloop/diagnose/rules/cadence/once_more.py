"""The trained model runs forward once more in every step."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.evidence import Evidence, at, cause
from hotloop.diagnose.rollouts import acts
from hotloop.findings import Finding
from hotloop.units import duration, share


def once_more(evidence: Evidence) -> Iterable[Finding]:
    """Forwards of the trained model in evaluation mode in most steps, where no simulation is acted in. What
    they are for no row tells: low at most.
    """
    steps = evidence.steps
    again = steps.sites.get("again", ())
    cost = sum(site.seconds for site in again) / steps.num_steps
    if not again or cost < evidence.limits.worth_fixing_ratio * steps.step_s or acts(evidence):
        return
    place, times = again[0].place, max(1, round(sum(site.count for site in again) / steps.num_steps))
    builds = any(site.flags.get("grad") for site in again)
    yield cause(
        evidence,
        message=(
            f"The model runs forward {'once' if times == 1 else f'{times} times'} more in every step"
            f"{at(place)}, in evaluation mode: {duration(cost)} ({share(cost / steps.step_s)})."
        ),
        advice=(
            "If it validates, do so every few steps; torch.no_grad() around it alone keeps every number and "
            "saves less. If training uses what it gives, leave it."
            if builds
            else "If it validates, do so every few steps. If training uses what it gives, leave it."
        ),
        numbers=[
            f"{site.count} calls in {steps.num_steps} steps, first{at(site.place)}"
            for site in again[:5]
            if site.place
        ],
        cost_s=cost,
        where=place,
        severity="low",
        remedies=(),
        data={"effect": "semantic"},
    )
