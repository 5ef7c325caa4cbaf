"""What interrupts the steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop import units
from hotloop.report import words
from hotloop.report.markup import Markup, section, table, tag

Report = Mapping[str, Any]


def render(report: Report) -> Markup:
    """The section; nothing where no step was seen."""
    if not report["num_steps"]:
        return Markup()
    rows = [
        [
            item["kind"],
            f"{item['count']:,}",
            units.duration(item["seconds"] / item["count"]),
            units.duration(item["seconds"]),
            f"{item['every_steps']:,.0f} steps" if item["every_steps"] else "–",
            tag("code", words.place(item["place"], report.get("cwd"))) if item["place"] else "",
        ]
        for item in report["interruptions"]
    ]
    head = ["interruption", "times", "each", "in all", "every", "where"]
    body = table(head, rows, numeric=(1, 2, 3, 4), caption="What interrupts the steps")
    return section(
        "pauses", "Between the steps", body, *(tag("p", note, class_="note") for note in _notes(report))
    )


def _notes(report: Report) -> list[str]:
    breaks, scaler = report["compile"]["graph_breaks"], report["scaler"]
    notes = [
        f"{breaks:,} graph breaks in compiled code." if breaks else "",
        f"The gradient scaler skipped {scaler['skips']:,} of {scaler['steps']:,} updates."
        if scaler["skips"]
        else "",
    ]
    return [note for note in notes if note]
