"""The top of the page: the verdict, the run in figures, and what could not be seen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.absence import reasons
from hotloop.report.markup import Markup, details, tag

Report = Mapping[str, Any]


def render(report: Report) -> Markup:
    """Verdict, command, figures, warnings."""
    verdict, first = _sentences(report["verdict"])
    return tag(
        "section",
        _exit(report),
        tag("h1", verdict),
        tag("p", first, class_="lead") if first else None,
        tag("p", tag("code", words.command(report["command"])), class_="command"),
        _patch(report),
        _figures(report),
        _reasons(report),
        _warnings(report),
        class_="summary",
        id="summary",
        aria_label="Verdict",
    )


def _sentences(verdict: str) -> tuple[str, str]:
    """The first sentence, and what follows it. A dot inside a name or a number ends no sentence."""
    match = re.search(r"(?<=[^\d.])\.\s+(?=[A-Z])", verdict)
    return (verdict[: match.start() + 1], verdict[match.end() :]) if match else (verdict, "")


def _exit(report: Report) -> Markup | None:
    if report["exit_code"] is None:
        return tag("p", "No exit code: still running, or killed", class_="eyebrow bad")
    if report["exit_code"]:
        return tag("p", f"The command ended with exit code {report['exit_code']}", class_="eyebrow bad")
    return None


def _patch(report: Report) -> Markup | None:
    """The code that ran is not what lies on disk: a reader has to know."""
    met = (report.get("patch") or {}).get("met")
    return tag("p", "With a patch in force: ", tag("code", ", ".join(met)), class_="command") if met else None


def _figures(report: Report) -> Markup:
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="sub") if note else None)
            for name, value, note in _all(report)
        ),
        class_="figures",
    )


def _all(report: Report) -> list[tuple[str, str, str]]:
    if not report["num_steps"]:
        return [
            ("wall time", units.duration(report["wall_s"]), ""),
            ("training processes", str(report["num_processes"]), ""),
        ]
    step = report["step_s"]
    return [
        (
            "step",
            units.duration(step["mean"]),
            f"median {units.duration(step['median'])}, 95 % under {units.duration(step['p95'])}",
        ),
        _throughput(report["throughput"]),
        ("steps", f"{report['num_steps']:,}", _counts(report)),
        (
            "wall time",
            units.duration(report["wall_s"]),
            f"start-up {units.duration(report['startup']['seconds'])}",
        ),
        *_trainings(report),
        *_ranks(report),
        ("accounted", _percent(report["accounted_ratio"]), _overhead(report)),
    ]


def _throughput(throughput: Mapping[str, Any]) -> tuple[str, str, str]:
    centre, unit, ci95 = throughput["samples_per_s"], "samples/s", throughput["samples_ci95"]
    if centre is None:
        centre, unit, ci95 = throughput["steps_per_s"], "steps/s", throughput["ci95"]
    interval = (
        f"95 % between {units.rate(ci95[0])} and {units.rate(ci95[1])}"
        if ci95
        else "too few steps for an interval"
    )
    return unit, units.rate(centre), interval


def _counts(report: Report) -> str:
    parts = []
    if report["num_epochs"]:
        parts.append(f"{report['num_epochs']:,} epoch{'' if report['num_epochs'] == 1 else 's'}")
    if report["num_updates"] != report["num_steps"]:
        parts.append(f"{report['num_updates']:,} updates")
    return ", ".join(parts) or "one update each"


def _trainings(report: Report) -> list[tuple[str, str, str]]:
    note = "the longest is shown; hotloop report RUN/rank-0.sqlite shows another"
    return [("trainings", str(report["num_trainings"]), note)] if report["num_trainings"] > 1 else []


def _ranks(report: Report) -> list[tuple[str, str, str]]:
    if len(report["ranks"]) < 2:
        return []
    slow = report["slowest_rank"]
    return [
        (
            "ranks",
            str(len(report["ranks"])),
            "even" if slow is None else f"rank {slow} holds up the others and is shown",
        )
    ]


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio * 100:.1f} %"


def _overhead(report: Report) -> str:
    cost = report["overhead_s_per_step"]
    return "" if cost is None else f"observing cost about {units.duration(cost)}/step"


def _reasons(report: Report) -> Markup | None:
    found = reasons(report)
    return tag("ul", *(tag("li", reason) for reason in found), class_="reasons") if found else None


def _warnings(report: Report) -> Markup | None:
    warnings = report["warnings"]
    if not warnings:
        return None
    items = tag("ul", *(tag("li", warning) for warning in warnings))
    count = "one thing" if len(warnings) == 1 else f"{len(warnings)} things"
    return tag(
        "div", details(f"hotloop could not see {count}", items, open_=len(warnings) <= 3), class_="warnings"
    )
