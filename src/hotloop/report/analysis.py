"""An analysis of other people's records in a terminal: what it says, over time, and where in the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hotloop import units
from hotloop.logs.analyze import Analysis
from hotloop.logs.log import Change, Part, Phase
from hotloop.report import words

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_MAX_CHANGES: Final = 6
_MAX_FINDINGS: Final = 8
_MAX_PARTS: Final = 12
_BAR: Final = 24
_TITLES: Final = {"stages": "Stages", "stated": "Stages, shares as the log says"}


def render(analysis: Analysis, *, width: int = 80, color: bool = False) -> str:
    """The verdict, then each file, then the findings; at most ``width`` columns."""
    lines = [words.paint(line, "1", color) for line in words.wrap(analysis.verdict, width)]
    for part in analysis.parts[:_MAX_PARTS]:
        lines += ["", *_part(part, width, color)]
    if len(analysis.parts) > _MAX_PARTS:
        lines += ["", f"and {len(analysis.parts) - _MAX_PARTS} more files; --json has them all"]
    for finding in analysis.findings[:_MAX_FINDINGS]:
        lines += ["", *words.finding(finding.to_json(), width=width, color=color)]
    if len(analysis.findings) > _MAX_FINDINGS:
        lines += ["", f"and {len(analysis.findings) - _MAX_FINDINGS} more findings; --json has them all"]
    return "\n".join(lines) + "\n"


def _part(part: Part, width: int, color: bool) -> list[str]:
    source = part.source
    skipped = f", {source.skipped:,} damaged" if source.skipped else ""
    counted = "events" if "events" in source.kind or "trace" in source.kind else "lines"
    tail = (
        f"  {source.kind}, {source.lines:,} {counted}{skipped}"
        if source.kind != "unreadable"
        else "  unreadable"
    )
    name = words.path(source.file, limit=max(12, width - words.cells(tail)))
    lines = [words.paint(name, "1", color) + words.paint(tail, "2", color)]
    for item in source.recognized:
        lines += words.hanging("  ", item, width)
    for item in source.notes:
        lines += words.hanging("  ! ", item, width)
    lines += _throughput(part, width)
    for of in dict.fromkeys(phase.of for phase in part.phases):
        title = _TITLES.get(of, "Where a step goes")
        lines += _phases([phase for phase in part.phases if phase.of == of], title, width)
    for section in part.sections:
        lines += ["", f"  {section.title}"]
        lines += [f"    {words.cut(words.clean(line), width - 4)}" for line in section.lines]
    return lines


def _throughput(part: Part, width: int) -> list[str]:
    if not part.throughput:
        return []
    rates = [point.rate for point in part.throughput]
    unit = part.throughput[0].unit
    first, last = part.throughput[0].step, part.throughput[-1].step
    lines = ["", f"  Throughput, {unit}: {units.rate(min(rates))} to {units.rate(max(rates))}"]
    if len(rates) >= 3:
        lines.append("    " + sparkline(rates, width - 8))
        ends = f"step {first:,.0f}", f"{last:,.0f}"
        lines.append(
            "    " + ends[0] + " " * max(1, min(len(rates), width - 8) - sum(map(len, ends))) + ends[1]
        )
    for change in part.changes[:_MAX_CHANGES]:
        lines += words.hanging("    ", _change(change), width)
    if len(part.changes) > _MAX_CHANGES:
        lines.append(f"    and {len(part.changes) - _MAX_CHANGES} more changes")
    return lines


def _change(change: Change) -> str:
    when = f" ({units.duration(change.time_s)} in)" if change.time_s else ""
    ratio = change.after / change.before - 1
    text = (
        f"step {change.step:,.0f}{when}: {units.rate(change.before)} -> {units.rate(change.after)} "
        f"({'+' if ratio > 0 else '-'}{units.share(abs(ratio))})"
    )
    return f"{text}; {', '.join(change.along)}" if change.along else text


def sparkline(values: Sequence[float], width: int) -> str:
    """Values as one row of blocks, from zero to the largest; neighbours share a column if need be."""
    count = min(len(values), width)
    columns = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = [sum(column) / len(column) for column in columns]
    top = sorted(means)[int(0.98 * (len(means) - 1))] or 1.0
    return "".join(_BLOCKS[min(7, max(0, int(mean / top * 7.999)))] for mean in means)


def _phases(phases: Sequence[Phase], title: str, width: int) -> list[str]:
    if not phases:
        return []
    lines = ["", f"  {title}"]
    longest = min(28, max(words.cells(words.PHASE_WORDS.get(phase.name, phase.name)) for phase in phases))
    for phase in phases[:16]:
        name = words.cut(words.clean(words.PHASE_WORDS.get(phase.name, phase.name)), longest)
        bar = "█" * max(1, round(phase.share * _BAR)) if phase.share >= 0.005 else ""
        pad = " " * (longest - words.cells(name))
        lines.append(
            f"    {name}{pad}  {units.duration(phase.s_per_step):>8}  {units.share(phase.share):>5}  {bar}"
        )
    return lines
