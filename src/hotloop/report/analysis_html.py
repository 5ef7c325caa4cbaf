"""An analysis of other people's records as one HTML file, made of the parts of a run's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from hotloop import __version__, units
from hotloop.logs.analyze import Analysis
from hotloop.logs.part import Part, Phase
from hotloop.report import html, words
from hotloop.report.markup import Markup, join, section, table, tag
from hotloop.report.sections import charts, findings
from hotloop.report.sections.time import bar, color

_MAX_PARTS: Final = 40
_MAX_CHANGES: Final = 50
_OF: Final = {"step": "of a step", "stages": "of all stages"}


def render(analysis: Analysis) -> str:
    """The whole page."""
    parts = analysis.parts[:_MAX_PARTS]
    specs = [spec for i, part in enumerate(parts) for spec in _throughput(i, part, len(parts))]
    body = join(
        [
            _summary(analysis),
            section("time", "Where the time goes", *(_phases(part, len(parts)) for part in parts)),
            _findings(analysis),
            section(
                "charts",
                "Throughput",
                charts.figures(specs) if specs else None,
                *(_changes(part) for part in parts),
                note="Over the steps. Hover, or focus a chart and use the arrow keys.",
            ),
            section("details", "What else is in the files", *(_details(part, len(parts)) for part in parts)),
            _files(analysis.parts),
        ]
    )
    title = ", ".join(PurePath(part.source.file).name for part in parts[:4])
    foot = f"hotloop {__version__} analyze, schema 1"
    return html.page(f"hotloop: {title[:120]}", body, foot, {"wall_s": 0, "charts": specs})


def _summary(analysis: Analysis) -> Markup:
    files = [words.path(part.source.file) for part in analysis.parts]
    more = f" and {len(files) - 4} more" if len(files) > 4 else ""
    return tag(
        "section",
        tag("h1", analysis.verdict),
        tag("p", tag("code", "  ".join(files[:4]) + more), class_="command"),
        class_="summary",
        id="summary",
        aria_label="Verdict",
    )


def _findings(analysis: Analysis) -> Markup:
    report = {
        "findings": [finding.to_json() for finding in analysis.findings],
        "num_steps": 0,  # a log without a finding is no healthy run: nothing is said
        "ranks": [part for part in analysis.parts if part.source.rank is not None],
    }
    return findings.render(report)


def _throughput(number: int, part: Part, num_parts: int) -> list[charts.Spec]:
    points = [point for point in part.throughput if math.isfinite(point.step)]
    if len(points) < 3:
        return []
    steps = [point.step for point in points]
    rates = [point.rate if math.isfinite(point.rate) else None for point in points]
    lines = [charts.make_line("rate", 0, steps, rates)]
    if part.changes:
        lines.append(charts.make_line("level", 1, *_levels(part, steps)))
    title = PurePath(part.source.file).name if num_parts > 1 else "Throughput"
    spec = charts.make_spec(f"throughput-{number}", title, points[0].unit, None, lines)
    return [{**spec, "x": "step"}]


def _levels(part: Part, steps: Sequence[float]) -> tuple[list[float], list[float]]:
    """The level before and after each change, as a line with corners."""
    at, values = [steps[0]], [part.changes[0].before]
    for change in part.changes:
        at += [change.step, change.step]
        values += [change.before, change.after]
    return [*at, steps[-1]], [*values, part.changes[-1].after]


def _changes(part: Part) -> Markup:
    name = PurePath(part.source.file).name
    rows = [
        [
            f"{change.step:,.0f}",
            units.duration(change.time_s) if change.time_s else "–",
            f"{units.rate(change.before)} to {units.rate(change.after)} {change.unit}",
            "; ".join(change.along),
            tag("code", f"{name}:{change.line}") if change.line else "",
        ]
        for change in part.changes[:_MAX_CHANGES]
    ]
    head = ["from step", "after", "throughput", "with it", "where"]
    return table(head, rows, numeric=(0, 1), caption=f"Changes of the throughput in {name}")


def _phases(part: Part, num_parts: int) -> Markup:
    name = PurePath(part.source.file).name
    found = []
    for of in dict.fromkeys(phase.of for phase in part.phases):
        phases = [phase for phase in part.phases if phase.of == of]
        shares = [(phase.name, phase.share, f"{units.duration(phase.s_per_step)}/step") for phase in phases]
        found += [bar(shares, name), _legend(phases, _OF.get(of, of), name)]
    title = tag("h3", name) if num_parts > 1 else None
    return tag("div", title, *found, class_="file") if found else Markup()


def _legend(phases: Sequence[Phase], of: str, name: str) -> Markup:
    rows = [
        [
            tag(
                "span",
                tag("i", style=f"--c:{color(phase.name, i)}", class_="swatch"),
                words.PHASE_WORDS.get(phase.name, phase.name),
            ),
            units.duration(phase.s_per_step),
            units.share(phase.share),
        ]
        for i, phase in enumerate(phases)
    ]
    return table(["phase", "per step", of], rows, numeric=(1, 2), caption=f"Where the time goes in {name}")


def _details(part: Part, num_parts: int) -> Markup:
    name = f" in {PurePath(part.source.file).name}" if num_parts > 1 else ""
    blocks = (
        item
        for one in part.sections
        for item in (tag("h3", one.title + name), tag("pre", tag("code", "\n".join(one.lines))))
    )
    return tag("div", *blocks, class_="file") if part.sections else Markup()


def _files(parts: Sequence[Part]) -> Markup:
    rows = [
        [
            tag("code", words.path(part.source.file)),
            part.source.kind,
            f"{part.source.lines:,}",
            f"{part.source.skipped:,}" if part.source.skipped else "",
            "; ".join((*part.source.recognized, *part.source.notes)),
        ]
        for part in parts
    ]
    head = ["file", "kind", "lines or events", "damaged", "what was recognized"]
    return section("files", "Files", table(head, rows, numeric=(2, 3), caption="The files"))
