"""Runs side by side in 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hotloop.compare.comparison import Comparison, Group, summary
from hotloop.units import duration, rate, size

_WIDTH: Final = 80
_NAME: Final = 22
#: Columns side by side, the first run's among them.
_COLUMNS: Final = 4

Cells = Sequence[str]


def render(groups: Sequence[Group], comparisons: Sequence[Comparison]) -> str:
    """The table; more runs than fit are shown in further tables, each beside the first."""
    lines = _commands(groups)
    for start in range(0, max(1, len(comparisons)), _COLUMNS - 1):
        shown = comparisons[start : start + _COLUMNS - 1]
        columns = [groups[0], *groups[1 + start : start + _COLUMNS]]
        lines += [*([""] if lines else []), *_table(columns, shown)]
    words = dict.fromkeys(word for one in comparisons for word in one.words)
    for word in words:
        lines += ["", *textwrap.wrap(word, _WIDTH, initial_indent="note: ", subsequent_indent=" " * 6)]
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _commands(groups: Sequence[Group]) -> list[str]:
    """What each label ran, where that differs: the reader of a ratio has to know it first."""
    if len({group.lead.command for group in groups}) == 1:
        return []
    lines = ["the commands differ"]
    for group in groups:
        head = f"  {_short(group.label, _NAME - 4)}"
        lines += textwrap.wrap(
            group.lead.command, _WIDTH, initial_indent=f"{head:<{_NAME}}", subsequent_indent=" " * _NAME,
            break_on_hyphens=False,
        )  # fmt: skip
    return lines


def _table(groups: Sequence[Group], comparisons: Sequence[Comparison]) -> list[str]:
    width = (_WIDTH - _NAME) // len(groups)
    facts = [summary(group) for group in groups]
    lines = [_row("", [_short(group.label, width - 2) for group in groups], width)]
    lines += [
        _row("steps", [f"{fact['num_steps']:,}" for fact in facts], width),
        _row("steps/s", [_rate(fact["steps_per_s"]) for fact in facts], width),
        _row("samples/s", [_rate(fact["samples_per_s"]) for fact in facts], width),
        _row("speed", ["", *(_ratio(one) for one in comparisons)], width),
        _row("  95 % interval", ["", *(_edges(one) for one in comparisons)], width),
    ]
    lines += _phases(facts, comparisons, width)
    lines += _section("memory, peak", _memory(comparisons), width)
    lines += _section("settings that differ", _settings(comparisons), width)
    lines += _section("findings", _findings(comparisons), width)
    return lines


def _phases(facts: Sequence[dict[str, Any]], comparisons: Sequence[Comparison], width: int) -> list[str]:
    moved = {move.phase: None for one in comparisons for move in one.phases}
    if not moved:
        return ["", "no phase moved"]
    rows = [(phase, [duration(fact["phases"][phase]) for fact in facts]) for phase in moved]
    doubt = {
        (move.phase, at + 1)
        for at, one in enumerate(comparisons)
        for move in one.phases
        if not move.beyond_noise
    }
    marked = [
        (phase, [f"{cell} ?" if (phase, at) in doubt else cell for at, cell in enumerate(cells)])
        for phase, cells in rows
    ]
    lines = _section("per step, what moved", marked, width)
    return [*lines, "  ? within the noise of the two runs"] if doubt else lines


def _memory(comparisons: Sequence[Comparison]) -> Iterable[tuple[str, list[str]]]:
    for name in ("host", "device"):
        values = [comparisons[0].memory[name][0], *(one.memory[name][1] for one in comparisons)]
        if any(value is not None for value in values):
            yield name, [size(value) if value is not None else "-" for value in values]


def _settings(comparisons: Sequence[Comparison]) -> Iterable[tuple[str, list[str]]]:
    for name in dict.fromkeys(name for one in comparisons for name in one.settings):
        first = next(one.settings[name][0] for one in comparisons if name in one.settings)
        cells = [_value(one.settings[name][1]) if name in one.settings else "=" for one in comparisons]
        yield name, [_value(first), *cells]


def _findings(comparisons: Sequence[Comparison]) -> Iterable[tuple[str, list[str]]]:
    for which, attribute in (("gone", "gone"), ("new", "new")):
        for finding in dict.fromkeys(f for one in comparisons for f in getattr(one, attribute)):
            before = "yes" if which == "gone" else "no"
            cells = [which if finding in getattr(one, attribute) else "=" for one in comparisons]
            yield finding, [before, *cells]


def _section(title: str, rows: Iterable[tuple[str, list[str]]], width: int) -> list[str]:
    lines = [_row(f"  {name}", cells, width) for name, cells in rows]
    return ["", title, *lines] if lines else []


def _row(name: str, cells: Cells, width: int) -> str:
    cells = [cell if len(cell) < width else cell[: width - 2] + "~" for cell in cells]
    if len(name) >= _NAME:  # a long name has its line to itself
        return f"{name}\n{'':<{_NAME}}" + "".join(f"{cell:<{width}}" for cell in cells).rstrip()
    return f"{name:<{_NAME}}" + "".join(f"{cell:<{width}}" for cell in cells)


def _short(label: str, width: int) -> str:
    name = label.rstrip("/")
    return name if len(name) <= width else f"~{name[-width + 1 :]}"


def _rate(value: float | None) -> str:
    return rate(value) if value else "-"


def _ratio(one: Comparison) -> str:
    return f"{one.speed.ratio:.2f}x" if one.speed.ratio is not None else "not measured"


def _edges(one: Comparison) -> str:
    return f"[{one.speed.ci95[0]:.2f}, {one.speed.ci95[1]:.2f}]" if one.speed.ci95 else "-"


def _value(value: Any) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
