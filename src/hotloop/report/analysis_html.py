"""An analysis of other people's records as one HTML file, made of the parts of a run's page."""

from __future__ import annotations

import math
from pathlib import PurePath
from typing import Any, Final

from markupsafe import Markup

from hotloop import __version__, units
from hotloop.logs.analyze import Analysis
from hotloop.logs.log import Part
from hotloop.report import charts, html, words

_MAX_PARTS: Final = 40
_MAX_CHANGES: Final = 50
_OF: Final = {"step": "of a step", "stages": "of all stages", "stated": "as the log says"}


def render(analysis: Analysis) -> str:
    """The whole page."""
    parts = analysis.parts[:_MAX_PARTS]
    specs = [spec for i, part in enumerate(parts) for spec in _throughput(i, part, len(parts))]
    body = html.environment().get_template("analysis.html.j2").render(
        cwd=None,
        verdict=analysis.verdict,
        files=[words.path(part.source.file) for part in analysis.parts],
        parts=[_part(part) for part in parts],
        found=[{"excerpt": None, **finding.to_json()} for finding in analysis.findings],
        several_ranks=sum(part.source.rank is not None for part in analysis.parts) > 1,
        specs=specs,
        sources=[part.source for part in analysis.parts],
    )  # fmt: skip
    title = ", ".join(PurePath(part.source.file).name for part in parts[:4])
    foot = f"hotloop {__version__} analyze, schema 1"
    return html.page(f"hotloop: {title[:120]}", Markup(body), foot, {"wall_s": 0, "charts": specs})


def _part(part: Part) -> dict[str, Any]:
    """A file as the template takes it; its phases by what they are shares of."""
    by_whole = {
        of: [
            (one.name, one.share, f"{units.duration(one.s_per_step)}/step")
            for one in part.phases
            if one.of == of
        ]
        for of in dict.fromkeys(one.of for one in part.phases)
    }
    return {
        "name": PurePath(part.source.file).name,
        "phases": [(_OF.get(of, of), phases) for of, phases in by_whole.items()],
        "changes": part.changes[:_MAX_CHANGES],
        "sections": part.sections,
    }


def _throughput(number: int, part: Part, num_parts: int) -> list[charts.Spec]:
    points = [point for point in part.throughput if math.isfinite(point.step)]
    if len(points) < 3:
        return []
    steps = [point.step for point in points]
    rates = [point.rate if math.isfinite(point.rate) else None for point in points]
    lines = [charts.make_line("rate", 0, steps, rates)]
    title = PurePath(part.source.file).name if num_parts > 1 else "Throughput"
    return [charts.make_spec(f"throughput-{number}", title, points[0].unit, lines, x="step")]
