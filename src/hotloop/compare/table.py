"""Runs side by side in the columns of the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.cells import cell_len, set_cell_size

from hotloop.compare.comparison import Comparison, Group, summary
from hotloop.compare.words import WIDTH, hanging
from hotloop.language import said
from hotloop.units import duration, rate, size

_NAME: Final = 22
#: Columns side by side, the first run's among them, each at least so wide.
_COLUMNS, _LEAST = 4, 14

Row = tuple[str, list[str]]


def render(groups: Sequence[Group], comparisons: Sequence[Comparison], width: int = WIDTH) -> str:
    """The table; more runs than fit are shown in further tables, each beside the first."""
    lines: list[str] = []
    most = max(2, min(_COLUMNS, (width - _NAME) // _LEAST))
    if len({group.lead.command for group in groups}) > 1:  # the reader of a ratio has to know it first
        lines.append("the commands differ")
        for group in groups:
            lines += hanging(f"{'  ' + group.label:<{_NAME - 1}} ", group.lead.command, width)
    for words in dict.fromkeys(words for one in comparisons for words in one.words):
        lines += hanging("note: ", words, width)
    for start in range(0, len(comparisons), most - 1):
        shown = comparisons[start : start + most - 1]
        columns = [groups[0], *groups[1 + start : start + most]]
        lines += [*([""] if lines else []), *_table(columns, shown, (width - _NAME) // len(columns))]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _table(groups: Sequence[Group], comparisons: Sequence[Comparison], width: int) -> list[str]:
    facts = [summary(group) for group in groups]
    speeds = [one.speed for one in comparisons]
    edges = [f"[{one.ci95[0]:.2f}, {one.ci95[1]:.2f}]" if one.ci95 else "-" for one in speeds]
    rows: list[Row] = [
        ("", _short([group.label for group in groups], width - 2)),
        ("steps", [f"{fact['num_steps']:,}" for fact in facts]),
        ("steps/s", [_rate(fact["steps_per_s"]) for fact in facts]),
        ("samples/s", [_rate(fact["samples_per_s"]) for fact in facts]),
        (
            "speed",
            ["", *(f"{one.ratio:.2f}x" if one.ratio is not None else "not measured" for one in speeds)],
        ),
        ("  95 % interval", ["", *edges]),
    ]
    lines = [_line(*row, width) for row in rows]
    phases = list(_phases(facts, comparisons))
    lines += _section("per step, what moved", phases, width) or ["", "no phase moved"]
    if any(cell.endswith("?") for _, cells in phases for cell in cells):
        lines.append("  ? within the noise of runs or of other programs")
    lines += _section("memory, peak", _memory(comparisons), width)
    lines += _section("settings that differ", _settings(comparisons), width)
    lines += _section("findings", _findings(comparisons), width)
    return lines


def _phases(facts: Sequence[dict[str, Any]], comparisons: Sequence[Comparison]) -> Iterable[Row]:
    for phase in dict.fromkeys(move.phase for one in comparisons for move in one.phases):
        unsure = [any(m.phase == phase and not m.beyond_noise for m in one.phases) for one in comparisons]
        cells = [duration(fact["phases"][phase]) for fact in facts]
        marks = [" ?" if doubt else "" for doubt in (False, *unsure)]
        yield phase, [cell + mark for cell, mark in zip(cells, marks, strict=True)]


def _memory(comparisons: Sequence[Comparison]) -> Iterable[Row]:
    for name in ("host", "device"):
        values = [comparisons[0].memory[name][0], *(one.memory[name][1] for one in comparisons)]
        if any(value is not None for value in values):
            yield name, [size(value) if value is not None else "-" for value in values]


def _settings(comparisons: Sequence[Comparison]) -> Iterable[Row]:
    for name in dict.fromkeys(name for one in comparisons for name in one.settings):
        first = next(one.settings[name][0] for one in comparisons if name in one.settings)
        cells = [_value(one.settings[name][1]) if name in one.settings else "=" for one in comparisons]
        yield name, [_value(first), *cells]


def _findings(comparisons: Sequence[Comparison]) -> Iterable[Row]:
    for which, before, sets in (
        ("gone", "yes", [one.gone for one in comparisons]),
        ("new", "no", [one.new for one in comparisons]),
    ):
        for finding in dict.fromkeys(finding for found in sets for finding in found):
            yield finding, [before, *(which if finding in found else "=" for found in sets)]


def _section(title: str, rows: Iterable[Row], width: int) -> list[str]:
    lines = [_line(f"  {name}", cells, width) for name, cells in rows]
    return ["", title, *lines] if lines else []


def _line(name: str, cells: Sequence[str], width: int) -> str:
    cells = [cell if len(cell) < width else cell[: width - 2] + "~" for cell in cells]
    label = name[: len(name) - len(name.lstrip())] + said(name.strip())
    long = cell_len(label) >= _NAME  # a long name has its line to itself
    return (f"{label}\n{'':<{_NAME}}" if long else set_cell_size(label, _NAME)) + "".join(
        f"{c:<{width}}" for c in cells
    )


def _short(labels: Sequence[str], width: int) -> list[str]:
    """Labels that fit: a long one is its last part, or its end where last parts are the same."""
    names = [label.rstrip("/") for label in labels]
    lasts = [name.rpartition("/")[2] for name in names]
    fits = [
        name if len(name) <= width or lasts.count(last) > 1 else last
        for name, last in zip(names, lasts, strict=True)
    ]
    return [name if len(name) <= width else f"~{name[-width + 1 :]}" for name in fits]


def _rate(value: float | None) -> str:
    return rate(value) if value else "-"


def _value(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
