"""The logging phase split by what was logged: numbers, images, progress output; no second counted twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hotloop.diagnose.evidence import Evidence, RuleEntry, at, beyond, cause, rarer
from hotloop.diagnose.groups import group_lines, sampled_interval, select
from hotloop.findings import Finding
from hotloop.measure.steps import LineCost, SiteCost, Steps
from hotloop.units import duration, share


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One kind of logging: how its operations, libraries and lines are known, and what to do about it."""

    id: str
    what: str
    advice: str
    remedies: tuple[str, ...]
    operations: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    source: re.Pattern[str] = re.compile(r"(?!)")

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Everything it takes beyond a fair share, at its most expensive place."""
        steps = evidence.steps
        seconds = _seconds(steps).get(self.id, 0.0)
        cost = beyond(steps, seconds, evidence.limits.logging_free_ratio)
        if cost <= 0:
            return
        sites = [site for site in _sites(steps) if _part(site) is self]
        lines = [line for line in _lines(steps) if _part_of_line(line, _sites(steps)) is self]
        group = next(iter(group_lines(lines)), None)
        site = max(sites, key=lambda one: one.seconds, default=None)
        if site is not None and group is not None and site.seconds < 0.5 * group.seconds:
            site = None  # what was only sampled takes more than what was counted
        where = site.place if site is not None else group.hottest.place if group is not None else None
        samples = sum(line.num_samples for line in lines)
        drawn = self.id == "cadence/images" and site is not None and site.count <= len(steps.evaluations)
        per_step, of_span = duration(seconds / steps.num_steps), share(seconds / steps.span_s)
        free = share(evidence.limits.logging_free_ratio)
        count = site.count if site is not None else 0
        call_s = site.seconds / max(1, site.count) if site is not None else 0.0
        numbers = [f"{per_step} per step, {of_span} of the training span"]
        if site is not None and count:
            each = f"{count / steps.num_steps:.2g} calls per step, {duration(call_s)} each"
            numbers.append(f"{site.operation}{at(where)}: {each}")
        if samples:
            numbers.append(f"{samples} stack samples")
        yield cause(
            evidence,
            message=f"{self.what} takes {per_step} of every step ({of_span}; {free} would do){at(where)}.",
            advice="Evaluate less often, or draw the images small or in another process."
            if drawn
            else self.advice,
            numbers=numbers,
            cost_s=cost,
            where=where,
            ci95=sampled_interval(cost, samples) if samples and not count else None,
            remedies=self.named(steps),
            data={
                "effect": "semantic",
                "count": count,
                "call_s": call_s,
                "every_nth": rarer(steps, seconds, count or steps.num_steps, evidence.limits.rarer_ratio),
            },
        )

    def named(self, steps: Steps) -> tuple[str, ...]:
        """The remedies; of progress output those for bars, for prints, or for both, as they were seen."""
        if self.id != "cadence/progress-output":
            return self.remedies
        prints = any(_PRINTS.search(line.source) for line in _lines(steps))
        bars = any(_part(site) is self for site in _sites(steps)) or not prints
        return tuple(name for name, seen in zip(self.remedies, (bars, prints), strict=True) if seen)


_PRINTS = re.compile(r"(?<![\w.])print\(|\btqdm\.write\(")
_NUMBERS = _Part(
    id="cadence/logging",
    what="Logging",
    advice="Log every 50-100 steps, and keep running values as tensors until then.",
    remedies=("throttled-logging",),
)
_IMAGES = _Part(
    id="cadence/images",
    what="Drawing and logging images",
    advice="Draw images once per evaluation or every few hundred steps, small, or in another process.",
    remedies=("fewer-images",),
    operations=("image", "figure"),
    libraries=("matplotlib", "PIL", "seaborn", "imageio", "plotly"),
    source=re.compile(
        r"\b(add_images?|add_figure|add_video|imshow|savefig|imwrite|imsave|save_image|make_grid|plt)\b"
    ),
)
_PROGRESS = _Part(
    id="cadence/progress-output",
    what="Printing progress",
    advice="Print every N steps, or give the progress bar mininterval=1 and set its postfix rarely.",
    remedies=("throttled-progress", "fewer-prints"),
    operations=("progress",),
    libraries=("tqdm", "rich", "alive_progress", "progressbar"),
    source=re.compile(r"\b(print|tqdm|pbar|set_postfix(_str)?|set_description|progress|stdout|stderr)\b"),
)
_PARTS = (_IMAGES, _PROGRESS, _NUMBERS)
RULES = tuple(RuleEntry(id=one.id, check=one.check) for one in _PARTS)


def _sites(steps: Steps) -> list[SiteCost]:
    return [site for site in steps.sites.get("logging", ()) if site.in_step]


def _lines(steps: Steps) -> list[LineCost]:
    return select(steps, lambda line: line.phase == "logging")


def _seconds(steps: Steps) -> dict[str, float]:
    """Seconds of the phase over the span by part, as sites and sampled lines share them."""
    total, sites = steps.span_totals.get("logging", 0.0), _sites(steps)
    weights = {
        part.id: max(
            sum(site.seconds for site in sites if _part(site) is part),
            sum(line.seconds for line in _lines(steps) if _part_of_line(line, sites) is part),
        )
        for part in _PARTS
    }
    known = sum(weights.values())
    if known <= 0:
        return {_NUMBERS.id: total}
    return {name: total * weight / known for name, weight in weights.items()}


def _part(site: SiteCost) -> _Part:
    return next((part for part in _PARTS if site.operation in part.operations), _NUMBERS)


def _part_of_line(line: LineCost, sites: list[SiteCost]) -> _Part:
    for site in sites:
        if site.place and site.place.at_line == line.place.at_line:
            return _part(site)
    for part in _PARTS:
        if line.library.startswith(part.libraries) or part.source.search(line.source):
            return part
    return _NUMBERS
