"""The line or function in which the making of batches spends its time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hotloop.findings import Place
from hotloop.measure.steps import LineCost, LoaderUse, Nature, Steps

#: A line with this share of its function is the cause by itself; of two that are alike the function is.
_DOMINATES = 2 / 3
#: Code without a name is part of the function it stands in.
_UNNAMED = re.compile(r"(\.<locals>)?\.<(lambda|listcomp|setcomp|dictcomp|genexpr)>.*$")
#: Fewer samples than this name no line: at 100 Hz a tenth of a second.
_MIN_SAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class Hotspot:
    """The hottest line of the hottest function. ``share`` is of the sampled time given.

    Where one line dominates its function ``share`` is the line's and ``is_line`` is true, else the
    function's.
    """

    place: Place
    share: float
    is_line: bool
    seconds: float
    on_cpu_ratio: float
    nature: Nature
    library: str
    source: str
    lines: tuple[LineCost, ...]

    @property
    def what(self) -> str:
        """The spot as people say it: the text of the line, or the function."""
        if self.is_line and self.source.strip():
            return f"«{shortened(self.source)}»"
        function = _UNNAMED.sub("", self.place.function)
        return f"{function}()" if function else str(self.place)


def hottest(lines: Iterable[LineCost], total_s: float) -> Hotspot | None:
    """The hotspot among these lines; None with too few samples."""
    kept = list(lines)
    if total_s <= 0 or sum(line.num_samples for line in kept) < _MIN_SAMPLES:
        return None
    functions: dict[tuple[str, str], list[LineCost]] = defaultdict(list)
    for line in kept:
        functions[line.place.file, _UNNAMED.sub("", line.place.function)].append(line)
    inside = max(functions.values(), key=seconds_of)
    places: dict[tuple[str, int], list[LineCost]] = defaultdict(list)
    for line in inside:
        places[line.place.file, line.place.line].append(line)
    at_line = max(places.values(), key=seconds_of)
    is_line = seconds_of(at_line) >= _DOMINATES * seconds_of(inside)
    spot = at_line if is_line else inside
    top = max(at_line, key=lambda line: line.seconds)
    seconds = seconds_of(spot)
    return Hotspot(
        place=top.place,
        share=min(1.0, seconds / total_s),
        is_line=is_line,
        seconds=seconds,
        on_cpu_ratio=sum(line.on_cpu_ratio * line.seconds for line in spot) / seconds,
        nature=top.nature,
        library=top.library,
        source=top.source,
        lines=tuple(spot),
    )


def making_lines(steps: Steps, loader: LoaderUse) -> tuple[LineCost, ...]:
    """The lines of making batches, without the training loop's own.

    The stack of a forked worker, and of a loader without workers, goes through the line that asks for the
    batch: time in torch's own code (collate) would be laid at its door.
    """
    asking = {
        line.statement or line.place for line in steps.lines if line.phase in ("data_wait", "epoch_gap")
    }
    own = {(place.file, place.line) for place in asking} | {
        (steps.source_loop.file, steps.source_loop.line) if steps.source_loop else ("", 0)
    }
    return tuple(line for line in loader.lines if (line.place.file, line.place.line) not in own)


def outside_samples(steps: Steps) -> list[LineCost]:
    """The user's lines in the training process that batches waited for, without making samples: a sampler."""
    making = {
        (line.place.file, line.place.line) for loader in steps.loaders for line in making_lines(steps, loader)
    }
    return [
        line
        for line in steps.lines
        if line.phase in ("data_wait", "epoch_gap")
        and line.place != line.statement
        and (line.place.file, line.place.line) not in making
    ]


def drawing_lines(steps: Steps, classes: Collection[str]) -> list[LineCost]:
    """Those of them in methods of these classes, or called from there: classes of a loader's samplers."""
    return [
        line
        for line in outside_samples(steps)
        if line.phase == "data_wait"
        and any(
            not set(classes).isdisjoint(place.function.split(".")[:-1])
            for place in (line.place, *line.callers)
        )
    ]


def seconds_of(lines: Sequence[LineCost]) -> float:
    """The summed seconds of lines."""
    return sum(line.seconds for line in lines)


def quoted(line: LineCost, width: int = 60) -> str:
    """The text of a line in quotation marks with a space before; "" where the recording does not hold it."""
    return f" «{shortened(line.source, width)}»" if line.source.strip() else ""


def shortened(source: str, width: int = 60) -> str:
    """One line of source, its spaces collapsed, cut to a width."""
    text = " ".join(source.split())
    return text if len(text) <= width else text[: width - 1] + "…"
