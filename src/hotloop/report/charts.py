"""Charts over the run: what the page's script draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from hotloop.phases import PHASES
from hotloop.report import words

Report = Mapping[str, Any]
Spec = dict[str, Any]

_UNIT_WORDS: Final = {
    "s": "", "bytes": "", "share": "share of each moment", "bytes/s": "per second", "%": "per cent"
}  # fmt: skip


def specs(report: Report) -> list[Spec]:
    """Every chart with something to show, as data for the script."""
    return [spec for spec in (*_from_steps(report), *map(_system, report["charts"]), _loss(report)) if spec]


def _from_steps(report: Report) -> list[Spec]:
    series = report["series"]
    if not series:
        return []
    edges = series["edges_s"]
    stack = [
        {"label": words.PHASE_WORDS[name], "color": f"--p-{name}", "values": series["phases"][name]}
        for name in PHASES
        if name in series["phases"]
    ]
    per_s = series["samples_per_s"] or series["steps_per_s"]
    unit = "samples/s" if series["samples_per_s"] else "steps/s"
    # Before the training span nothing is trained: a gap says that better than a line at zero.
    rate = [value if value else None for value in per_s]
    middles = [(a + b) / 2 for a, b in pairwise(edges)]
    times = series["step_s"]
    step_times = [
        make_line("longest", 1, middles, times["max"]),
        make_line("median", 0, middles, times["median"]),
    ]
    return [
        make_spec("phases", "Phases over time", "share", stack, kind="stack", edges=edges),
        make_spec("throughput", "Throughput", unit, [make_line("throughput", 0, middles, rate)]),
        make_spec("step-time", "Step time", "s", step_times),
    ]


def _system(chart: Mapping[str, Any]) -> Spec:
    lines = [
        make_line(line["label"], i, line["t_s"], line["values"]) for i, line in enumerate(chart["lines"])
    ]
    return make_spec(chart["id"], chart["title"], chart["unit"], lines)


def _loss(report: Report) -> Spec | None:
    loss = (report["series"] or {}).get("loss")
    if not loss:
        return None
    missing = f"{loss['num_non_finite']} not finite" if loss["num_non_finite"] else ""
    lines = [make_line("loss", 0, loss["step"], loss["value"])]
    return make_spec("loss", "Loss", "", lines, x="step", unit_words=missing)


def make_line(label: str, index: int, t_s: Sequence[Any], values: Sequence[Any]) -> dict[str, Any]:
    """A line of a chart over ``t_s``, in the colour of its number."""
    return {"label": label, "color": f"--l-{index % 6}", "t_s": t_s, "values": values}


def make_spec(
    id_: str, title: str, unit: str, lines: list[dict[str, Any]], *, x: str = "time", **more: Any
) -> Spec:
    """A chart as the page's script takes it, over "time" or the "step"; ``more`` is put over what it has."""
    labels = ", ".join(str(line["label"]) for line in lines)
    return {
        "id": id_,
        "title": title,
        "unit": unit,
        "unit_words": _UNIT_WORDS.get(unit, unit),
        "kind": "line",
        "edges": None,
        "lines": lines,
        "x": x,
        "summary": f"{title}: {labels}",
        **more,
    }
