"""The logging phase split by what was logged: numbers, images, progress output; no second counted twice."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from hotloop.diagnose.causes import at, beyond, cause, rarer
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import group_lines, sampled_interval, select
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost, SiteCost, Steps
from hotloop.units import duration, share

Part = Literal["logging", "images", "progress"]

_IMAGE_OPERATIONS = {"image", "figure"}
_PROGRESS_OPERATIONS = {"progress"}
_IMAGE_LIBRARIES = ("matplotlib", "PIL", "seaborn", "imageio", "plotly")
_PROGRESS_LIBRARIES = ("tqdm", "rich", "alive_progress", "progressbar")
_IMAGE_SOURCE = re.compile(
    r"\b(add_images?|add_figure|add_video|imshow|savefig|imwrite|imsave|save_image|make_grid|plt)\b"
)
_PRINTS = re.compile(r"(?<![\w.])print\(|\btqdm\.write\(")
_PROGRESS_SOURCE = re.compile(
    r"\b(print|tqdm|pbar|set_postfix(_str)?|set_description|progress|stdout|stderr)\b"
)


@dataclass(frozen=True, kw_only=True)
class LoggingPart:
    """What one kind of logging took in the training span, and its most expensive place.

    ``count`` and ``call_s`` are 0 where calls were only sampled, not counted.
    """

    seconds: float
    where: Place | None
    operation: str
    count: int
    call_s: float
    num_samples: int


def part_of(steps: Steps, part: Part) -> LoggingPart | None:
    """One part of the logging phase, None where nothing of it was seen."""
    total = steps.span_totals.get("logging", 0.0)
    if total <= 0:
        return None
    lines = select(steps, lambda line: line.phase == "logging")
    sites = [site for site in steps.sites.get("logging", ()) if site.in_step]
    by_place = {(site.place.file, site.place.line): site for site in sites if site.place}
    weights = {
        name: max(
            sum(site.seconds for site in sites if _site_part(site) == name),
            sum(line.seconds for line in lines if _line_part(line, by_place) == name),
        )
        for name in ("logging", "images", "progress")
    }
    known = sum(weights.values())
    if known <= 0:
        weights, known = {"logging": total, "images": 0.0, "progress": 0.0}, total
    if weights[part] <= 0:
        return None
    own_sites = [site for site in sites if _site_part(site) == part]
    own_lines = [line for line in lines if _line_part(line, by_place) == part]
    return _describe(total * weights[part] / known, own_sites, own_lines)


def draws_bars(steps: Steps) -> bool:
    """Whether progress bars were seen to be drawn in steps."""
    return any(site.in_step and _site_part(site) == "progress" for site in steps.sites.get("logging", ()))


def prints(steps: Steps) -> bool:
    """Whether lines that print were sampled in steps."""
    lines = select(steps, lambda line: line.phase == "logging")
    return any(_PRINTS.search(line.source) for line in lines)


def _describe(seconds: float, sites: list[SiteCost], lines: list[LineCost]) -> LoggingPart:
    groups = group_lines(lines)
    num_samples = sum(line.num_samples for line in lines)
    costliest = max(sites, key=lambda site: site.seconds, default=None)
    hottest = groups[0] if groups else None
    if costliest is not None and (hottest is None or costliest.seconds >= 0.5 * hottest.seconds):
        return LoggingPart(
            seconds=seconds,
            where=costliest.place,
            operation=costliest.operation,
            count=costliest.count,
            call_s=costliest.seconds / max(1, costliest.count),
            num_samples=num_samples,
        )
    where = hottest.hottest.place if hottest else None
    return LoggingPart(
        seconds=seconds, where=where, operation="", count=0, call_s=0.0, num_samples=num_samples
    )


def _site_part(site: SiteCost) -> Part:
    if site.operation in _IMAGE_OPERATIONS:
        return "images"
    return "progress" if site.operation in _PROGRESS_OPERATIONS else "logging"


def _line_part(line: LineCost, by_place: dict[tuple[str, int], SiteCost]) -> Part:
    site = by_place.get((line.place.file, line.place.line))
    if site is not None:
        return _site_part(site)
    if line.library.startswith(_IMAGE_LIBRARIES) or _IMAGE_SOURCE.search(line.source):
        return "images"
    if line.library.startswith(_PROGRESS_LIBRARIES) or _PROGRESS_SOURCE.search(line.source):
        return "progress"
    return "logging"


def finding_of_part(
    evidence: Evidence,
    finding_id: str,
    part: Part,
    *,
    what: str,
    advice: str,
    remedies: tuple[str, ...],
) -> Iterable[Finding]:
    """The finding of one part: everything it takes beyond a fair share, at its most expensive place."""
    steps = evidence.steps
    found = part_of(steps, part) if enough(evidence) else None
    if found is None:
        return
    cost = beyond(steps, found.seconds, evidence.limits.logging_free_ratio)
    if cost <= 0:
        return
    per_step = found.seconds / steps.num_steps
    share_of_span = share(found.seconds / steps.span_s)
    numbers = [f"{duration(per_step)} per step, {share_of_span} of the training span"]
    if found.count:
        numbers.append(
            f"{found.operation}{at(found.where)}: {found.count / steps.num_steps:.2g} calls per step, "
            f"{duration(found.call_s)} each"
        )
    if found.num_samples:
        numbers.append(f"{found.num_samples} stack samples")
    yield cause(
        evidence,
        finding_id,
        message=f"{what} takes {duration(per_step)} of every step ({share_of_span}){at(found.where)}.",
        advice=advice,
        numbers=numbers,
        cost_s=cost,
        where=found.where,
        ci95=sampled_interval(cost, found.num_samples) if found.num_samples and not found.count else None,
        remedies=remedies,
        data={
            "effect": "semantic",
            "count": found.count,
            "call_s": found.call_s,
            "every_nth": rarer(
                steps, found.seconds, found.count or steps.num_steps, evidence.limits.rarer_ratio
            ),
        },
    )
