"""Writing checkpoints takes a large part of the training span."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hotloop.diagnose.causes import at, beyond, cause, rarer, steps_between
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import group_lines, select
from hotloop.diagnose.intervals import written
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Interval, SiteCost, Steps
from hotloop.units import duration, share, size

ID = "cadence/checkpoint"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Checkpoint time beyond what a sensible cadence would leave."""
    steps, limits = evidence.steps, evidence.limits
    seconds = steps.span_totals.get("checkpoint", 0.0)
    cost = beyond(steps, seconds, limits.checkpoint_free_ratio)
    if not enough(evidence) or cost <= 0:
        return
    inside = [c for c in steps.checkpoints if steps.span[0] <= c.start_s < steps.span[1]]
    sites = steps.sites.get("checkpoint", ())
    site = max(sites, key=lambda s: s.seconds, default=None)
    where = _where(steps, inside, site)
    count = len(inside) or (site.count if site else 0)
    every = steps_between(steps, inside) if inside else steps.num_steps / max(1, count)
    asked = written(evidence, "checkpoint", every)
    if asked is not None:
        where = Place(file=asked.file, line=asked.line)
    yield cause(
        evidence,
        ID,
        message=(
            f"Writing checkpoints takes {share(seconds / steps.span_s)} of the training time: "
            f"one every {every:.0f} steps{at(where)}."
        ),
        advice=(
            "Write checkpoints less often (by time rather than by step), "
            "or copy the state to host memory and write it in a thread."
            + (f" They are asked for by {asked.text}." if asked is not None else "")
        ),
        numbers=_numbers(steps, seconds, inside, site, every),
        cost_s=cost,
        where=where,
        remedies=("less-frequent-checkpoint", "asynchronous-checkpoint"),
        data={
            "effect": "semantic",
            "num_checkpoints": count,
            "steps_between": every,
            "every_nth": rarer(steps, seconds, count, limits.rarer_ratio),
        },
    )


def _where(steps: Steps, inside: list[Interval], site: SiteCost | None) -> Place | None:
    if site is not None and site.place is not None:
        return site.place
    if inside and (place := max(inside, key=lambda c: c.seconds).place) is not None:
        return place
    groups = group_lines(select(steps, lambda line: line.phase == "checkpoint"))
    return groups[0].hottest.place if groups else None


def _numbers(
    steps: Steps, seconds: float, inside: list[Interval], site: SiteCost | None, every: float
) -> list[str]:
    numbers = [f"{duration(seconds)} of {duration(steps.span_s)} in checkpoints, one every {every:.0f} steps"]
    if inside:
        numbers.append(f"one checkpoint takes {duration(float(np.mean([c.seconds for c in inside])))}")
    if site is not None and site.count:
        written = f", {size(site.num_bytes / site.count)} each" if site.num_bytes else ""
        numbers.append(
            f"{site.operation}: {site.count} calls, {duration(site.seconds / site.count)} each{written}"
        )
    return numbers
