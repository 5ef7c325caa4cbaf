"""The findings as cards: cost, place, sentence, advice, evidence, source, and the page about the rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.code import excerpt
from hotloop.report.docs import page
from hotloop.report.markup import Markup, details, section, tag

Report = Mapping[str, Any]


def render(report: Report) -> Markup:
    """Findings above info as cards, the others as a quiet list."""
    above = [finding for finding in report["findings"] if finding["severity"] != "info"]
    info = [finding for finding in report["findings"] if finding["severity"] == "info"]
    cards = [_card(report, finding, number) for number, finding in enumerate(above, start=1)]
    quiet = (
        details(
            f"{len(info)} more that cost nothing here", *(_card(report, finding, None) for finding in info)
        )
        if info
        else None
    )
    if not cards and report["num_steps"]:
        cards = [_none(report)]
    return section(
        "findings",
        "Findings",
        *cards,
        quiet,
        note="Sorted by what removing the cause would save. The first is what to do first."
        if len(above) > 1
        else None,
    )


def _none(report: Report) -> Markup:
    # Without a finding only a compute-bound run is known to be fine.
    if report["bottleneck"] == "device":
        return tag("p", "Nothing worth fixing was found.", class_="healthy")
    return tag("p", "No single cause worth fixing could be named.")


def _card(report: Report, finding: Mapping[str, Any], number: int | None) -> Markup:
    return tag(
        "article",
        tag(
            "header",
            tag(
                "h3", tag("span", str(number), class_="rank") if number else None, tag("code", finding["id"])
            ),
            _cost(finding),
        ),
        tag("p", finding["message"], class_="message"),
        tag("p", tag("span", "Do", class_="do"), finding["advice"], class_="advice"),
        _place(report, finding),
        excerpt(finding.get("excerpt"), finding["where"]["line"]) if finding["where"] else None,
        _evidence(finding),
        _gain(finding),
        _page(finding),
        class_=f"card {finding['severity']}",
        id=f"finding-{number}" if number else None,
    )


def _cost(finding: Mapping[str, Any]) -> Markup:
    severity = tag("span", finding["severity"], class_="severity")
    if finding["cost_s_per_step"] <= 0:
        return tag("p", severity, class_="cost")
    ci95 = finding["cost_ci95"]
    interval = f"95 %: {units.duration(ci95[0])} to {units.duration(ci95[1])}" if ci95 else None
    return tag(
        "p",
        tag("strong", units.duration(finding["cost_s_per_step"]), title=interval),
        "/step",
        tag("span", units.share(finding["share"]), class_="share"),
        severity,
        class_="cost",
    )


def _place(report: Report, finding: Mapping[str, Any]) -> Markup | None:
    where = finding["where"]
    several = finding["rank"] is not None and len(report["ranks"]) > 1
    rank = tag("span", f" on rank {finding['rank']}") if several else None
    if not where:
        return tag("p", rank, class_="place") if rank else None
    name = words.place(where, report.get("cwd"))
    function = f" in {where['function']}" if where.get("function") else None
    return tag("p", tag("code", name, title=where["file"]), function, rank, class_="place")


def _evidence(finding: Mapping[str, Any]) -> Markup | None:
    return (
        tag("ul", *(tag("li", item) for item in finding["evidence"]), class_="evidence")
        if finding["evidence"]
        else None
    )


def _gain(finding: Mapping[str, Any]) -> Markup | None:
    gain = finding["gain"]
    if not gain:
        return None
    kind = "Measured" if gain["measured"] else "Predicted"
    low, high = gain["ci95"]
    return tag(
        "p",
        f"{kind} without it: {gain['ratio']:.2f} times as fast (95 %: {low:.2f} to {high:.2f})",
        class_="gain",
    )


def _page(finding: Mapping[str, Any]) -> Markup | None:
    content = page(str(finding["id"]))
    return details("About this finding", tag("div", content, class_="prose")) if content else None
