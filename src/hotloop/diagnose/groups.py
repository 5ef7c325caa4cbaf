"""Sampled lines put together into causes: what one statement of the loop reached, the hottest spot of making
batches, lines of one kind.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import sqrt

from hotloop.findings import Place
from hotloop.measure.attribution import SETUP
from hotloop.measure.steps import LineCost, Nature, Steps
from hotloop.stats import NORMAL95
from hotloop.units import share

#: Lines of one function this close together are one piece of work.
_ADJACENT_LINES = 2
#: A line with this share of its function is the cause by itself; of two that are alike the function is.
DOMINATES = 2 / 3
#: Lines of a function that are named, and the share of all that each has at least.
_MAX_PARTS, _LEAST_PART = 3, 0.1
#: Code without a name is part of the function it stands in.
_UNNAMED = re.compile(r"(\.<locals>)?\.<(lambda|listcomp|setcomp|dictcomp|genexpr)>.*$")
#: Fewer samples than this name no line: at 100 Hz a tenth of a second.
_MIN_SAMPLES = 10
#: The function that takes this much of a script's setup is named.
_SETUP_S, _SETUP_RATIO = 1.0, 0.25
#: Fewer say nothing of a kind of lines.
_FEWEST_SAMPLES = 5


@dataclass(frozen=True, kw_only=True)
class LineGroup:
    """Lines that are one cause, hottest first; ``total_s`` is the sampled time they are a share of."""

    lines: tuple[LineCost, ...]
    total_s: float = 0.0
    is_line: bool = False  # one line dominates its function, else the function is meant

    @property
    def hottest(self) -> LineCost:
        """The line to name."""
        return self.lines[0]

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.hottest.place

    @property
    def source(self) -> str:
        """Its text."""
        return self.hottest.source

    @property
    def library(self) -> str:
        """What it spends its time in."""
        return self.hottest.library

    @property
    def seconds(self) -> float:
        """Sampled seconds over the training span."""
        return seconds_of(self.lines)

    @property
    def share(self) -> float:
        """Their share of the sampled time."""
        return min(1.0, self.seconds / self.total_s) if self.total_s > 0 else 0.0

    @property
    def num_samples(self) -> int:
        """Samples behind ``seconds``."""
        return sum(line.num_samples for line in self.lines)

    @property
    def on_cpu_ratio(self) -> float:
        """The share of their time on a CPU."""
        seconds = self.seconds
        return sum(line.on_cpu_ratio * line.seconds for line in self.lines) / seconds if seconds > 0 else 1.0

    @property
    def function(self) -> str:
        """The function of the hottest line, "" at module level."""
        return self.place.function.removesuffix("<module>")

    @property
    def what(self) -> str:
        """The spot as people say it: the text of the line, or the function."""
        if self.is_line and self.source.strip():
            return f"«{shortened(self.source)}»"
        function = _UNNAMED.sub("", self.place.function)
        return f"{function}()" if function.removesuffix("<module>") else "The script"

    @property
    def hottest_lines(self) -> str:
        """Its hottest lines with their shares; "" where one line stands for it."""
        by_line: dict[int, float] = defaultdict(float)
        for line in () if self.is_line else self.lines:
            by_line[line.place.line] += line.seconds / max(self.total_s, self.seconds)
        hot = sorted(by_line, key=lambda at: -by_line[at])[:_MAX_PARTS]
        named = [f"{share(by_line[at])} at line {at}" for at in hot if by_line[at] >= _LEAST_PART]
        return ", ".join(named) if len(by_line) > 1 else ""

    @property
    def parts(self) -> str:
        """These lines in brackets, behind a space."""
        return f" ({self.hottest_lines})" if self.hottest_lines else ""

    @property
    def nature(self) -> Nature:
        """The nature most of the time has."""
        totals: dict[Nature, float] = defaultdict(float)
        for line in self.lines:
            totals[line.nature] += line.seconds
        return max(totals, key=lambda name: totals[name])

    def less(self, seconds: float) -> LineGroup:
        """The group without seconds that are another cause's, taken from all lines alike."""
        kept = max(0.0, 1 - seconds / self.seconds) if self.seconds > 0 else 0.0
        return replace(self, lines=tuple(replace(line, seconds=line.seconds * kept) for line in self.lines))


def grouped(lines: Iterable[LineCost], total_s: float = 0.0, *, is_line: bool = False) -> LineGroup:
    """Lines as one cause."""
    return LineGroup(
        lines=tuple(sorted(lines, key=lambda line: -line.seconds)), total_s=total_s, is_line=is_line
    )


def hottest(lines: Iterable[LineCost], total_s: float) -> LineGroup | None:
    """The hottest line of the hottest function, or that function; None with too few samples."""
    functions: dict[tuple[str, str], list[LineCost]] = defaultdict(list)
    for line in lines:
        functions[line.place.file, _UNNAMED.sub("", line.place.function)].append(line)
    samples = sum(line.num_samples for members in functions.values() for line in members)
    if total_s <= 0 or samples < _MIN_SAMPLES:
        return None
    inside = max(functions.values(), key=seconds_of)
    places: dict[tuple[str, int], list[LineCost]] = defaultdict(list)
    for line in inside:
        places[line.place.at_line].append(line)
    at_line = grouped(max(places.values(), key=seconds_of), total_s, is_line=True)
    if at_line.seconds >= DOMINATES * seconds_of(inside):
        return at_line
    rest = [line for line in inside if line not in at_line.lines]
    return LineGroup(lines=(*at_line.lines, *rest), total_s=total_s)


def of_kind(
    lines: Iterable[LineCost], total_s: float, belongs: Callable[[LineCost], bool]
) -> LineGroup | None:
    """The lines a predicate picks; None where there are none or too few samples."""
    group = grouped([line for line in lines if line.seconds > 0 and belongs(line)], total_s, is_line=True)
    return group if total_s > 0 and group.num_samples >= _FEWEST_SAMPLES else None


def setup_group(steps: Steps) -> LineGroup | None:
    """The lines of the function that takes most of the script's own work before training."""
    lines = [one for one in steps.lines if one.phase == "startup" and not one.library.startswith("importlib")]
    group = next(iter(group_lines(lines)), None)
    least_s = max(_SETUP_S, _SETUP_RATIO * steps.startup.get(SETUP, 0.0))
    return group if group is not None and group.seconds >= least_s else None


def group_lines(lines: Iterable[LineCost], framework_call: Place | None = None) -> list[LineGroup]:
    """Groups of lines, costliest first.

    A line inside a function that the loop called belongs to the calling statement; where that is unknown, to
    its function. Lines of the loop itself belong together when they are adjacent. Where a framework has the
    loop, what it does itself is a group, and each function of the user's that it calls.
    """
    called: dict[tuple[str, int | str], list[LineCost]] = defaultdict(list)
    own: dict[tuple[str, str], list[LineCost]] = defaultdict(list)
    for line in lines:
        if (
            framework_call is not None
            and line.statement is not None
            and line.statement.at_line == framework_call.at_line
        ):
            entered = line.entered or line.place
            own_line = entered.at_line == framework_call.at_line
            called[entered.file, entered.line if own_line else entered.function].append(line)
        elif line.statement is None:
            called[line.place.in_function].append(line)
        elif line.place.in_function != line.statement.in_function:
            called[line.statement.at_line].append(line)
        else:
            own[line.place.in_function].append(line)
    clusters = [*called.values(), *(one for members in own.values() for one in _adjacent(members))]
    return costliest_first(clusters)


def costliest_first(clusters: Iterable[list[LineCost]]) -> list[LineGroup]:
    """A group of each cluster of lines."""
    return sorted(map(grouped, clusters), key=lambda group: -group.seconds)


def without(groups: Iterable[LineGroup], seconds: float) -> list[LineGroup]:
    """The groups without seconds that are another cause's, taken from the costliest first."""
    left = []
    for group in groups:
        left.append(group.less(min(seconds, group.seconds)))
        seconds -= min(seconds, group.seconds)
    return sorted(left, key=lambda group: -group.seconds)


def sampled_interval(seconds_per_step: float, num_samples: int) -> tuple[float, float]:
    """95 % interval of a sampled time: counting error of the samples behind it."""
    error = NORMAL95 / sqrt(max(1, num_samples))
    return (max(0.0, seconds_per_step * (1 - error)), seconds_per_step * (1 + error))


def select(steps: Steps, keep: Callable[[LineCost], bool]) -> list[LineCost]:
    """Sampled lines of the main thread that satisfy ``keep``."""
    return [line for line in steps.lines if line.seconds > 0 and keep(line)]


def seconds_of(lines: Iterable[LineCost]) -> float:
    """The summed seconds of lines."""
    return sum(line.seconds for line in lines)


def asking(lines: Iterable[LineCost]) -> Place | None:
    """The statement of the training loop that most of the time was spent under."""
    seconds: dict[Place, float] = defaultdict(float)
    for line in lines:
        seconds[line.statement or line.place] += line.seconds
    return max(seconds, key=lambda place: seconds[place], default=None)


def quoted(line: LineCost) -> str:
    """The text of a line in quotation marks with a space before; "" where the recording does not hold it."""
    return f" «{shortened(line.source)}»" if line.source.strip() else ""


def shortened(source: str) -> str:
    """Source as one short line."""
    text = " ".join(source.split())
    return text if len(text) <= 60 else text[:59] + "…"


def _adjacent(lines: list[LineCost]) -> list[list[LineCost]]:
    """Split the lines of one function where more than a few lines lie between them."""
    clusters: list[list[LineCost]] = []
    for line in sorted(lines, key=lambda line: line.place.line):
        if clusters and line.place.line - clusters[-1][-1].place.line <= _ADJACENT_LINES:
            clusters[-1].append(line)
        else:
            clusters.append([line])
    return clusters
