"""Sampled lines put together into causes: all lines that one statement of the training loop reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hotloop.findings import Place
from hotloop.measure.steps import LineCost, Steps

#: Lines of one function this close together are one piece of work.
_ADJACENT_LINES = 2


@dataclass(frozen=True, kw_only=True)
class LineGroup:
    """Lines that are one cause, hottest first."""

    lines: tuple[LineCost, ...]

    @property
    def hottest(self) -> LineCost:
        """The line to name."""
        return self.lines[0]

    @property
    def seconds(self) -> float:
        """Sampled seconds over the training span."""
        return sum(line.seconds for line in self.lines)

    @property
    def num_samples(self) -> int:
        """Samples behind ``seconds``."""
        return sum(line.num_samples for line in self.lines)

    @property
    def function(self) -> str:
        """The function of the hottest line, "" at module level."""
        return self.hottest.place.function.removesuffix("<module>")

    def less(self, seconds: float) -> LineGroup:
        """The group without seconds that are another cause's, taken from all lines alike."""
        kept = max(0.0, 1 - seconds / self.seconds) if self.seconds > 0 else 0.0
        return LineGroup(lines=tuple(replace(line, seconds=line.seconds * kept) for line in self.lines))

    def nature(self) -> str:
        """The nature most of the time has."""
        totals: dict[str, float] = {}
        for line in self.lines:
            totals[line.nature] = totals.get(line.nature, 0.0) + line.seconds
        return max(totals, key=lambda name: totals[name])


def group_lines(lines: Iterable[LineCost], framework_call: Place | None = None) -> list[LineGroup]:
    """Groups of lines, costliest first.

    A line inside a function that the loop called belongs to the calling statement; where that is unknown, to
    its function. Lines of the loop itself belong together when they are adjacent. Where a framework has the
    loop, what it does itself is a group, and each function of the user's that it calls.
    """
    called: dict[tuple[str, int | str], list[LineCost]] = {}
    own: dict[tuple[str, str], list[LineCost]] = {}
    for line in lines:
        if framework_call is not None and line.statement is not None and _at(line.statement, framework_call):
            entered = line.entered or line.place
            own_line = _at(entered, framework_call)
            called.setdefault((entered.file, entered.line if own_line else entered.function), []).append(line)
        elif line.statement is None:
            called.setdefault((line.place.file, line.place.function), []).append(line)
        elif not _same_function(line.place, line.statement):
            called.setdefault((line.statement.file, line.statement.line), []).append(line)
        else:
            own.setdefault((line.place.file, line.place.function), []).append(line)
    clusters = list(called.values())
    for members in own.values():
        clusters.extend(_adjacent(members))
    groups = [LineGroup(lines=tuple(sorted(cluster, key=lambda line: -line.seconds))) for cluster in clusters]
    return sorted(groups, key=lambda group: -group.seconds)


def sampled_interval(seconds_per_step: float, num_samples: int) -> tuple[float, float]:
    """95 % interval of a sampled time: counting error of the samples behind it."""
    error = 1.96 / math.sqrt(max(1, num_samples))
    return (max(0.0, seconds_per_step * (1 - error)), seconds_per_step * (1 + error))


def select(steps: Steps, keep: Callable[[LineCost], bool]) -> list[LineCost]:
    """Sampled lines of the main thread that satisfy ``keep``."""
    return [line for line in steps.lines if line.seconds > 0 and keep(line)]


def _at(a: Place, b: Place) -> bool:
    return a.file == b.file and a.line == b.line


def _same_function(a: Place, b: Place) -> bool:
    return a.file == b.file and a.function == b.function


def _adjacent(lines: list[LineCost]) -> list[list[LineCost]]:
    """Split the lines of one function where more than a few lines lie between them."""
    clusters: list[list[LineCost]] = []
    for line in sorted(lines, key=lambda line: line.place.line):
        if clusters and line.place.line - clusters[-1][-1].place.line <= _ADJACENT_LINES:
            clusters[-1].append(line)
        else:
            clusters.append([line])
    return clusters
