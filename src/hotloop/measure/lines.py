"""What every sampled source line costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.findings import Place
from hotloop.measure.attribution import AT_EXIT, LONG_GAP_NS, Bytes, Gaps, Split
from hotloop.measure.loop import Loop, Reading
from hotloop.measure.places import Frame, Places, Stack
from hotloop.measure.spans import Ints, Spans, Table, innermost
from hotloop.measure.steps import Floats, LineCost, Nature, Role
from hotloop.phases import COLUMN, PHASES
from hotloop.record import rows as row


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """Where every sample fell and what it is part of. Arrays over samples unless marked."""

    samples: Table
    gap: Ints  # index of the open gap, -1
    phase: Bytes
    kind: Bytes  # kind of the innermost row, 0 in gaps
    reading: Ints  # index into ``readings`` for those in open gaps, -1
    readings: tuple[Reading, ...]  # [distinct]


def read_samples(samples: Table, spans: Spans, phase: Bytes, gaps: Gaps, loop: Loop) -> Sampled:
    """Finds the row or the gap of every sample and reads its stack."""
    owner = innermost(spans, samples.start)
    held = owner >= 0
    kind = np.zeros(len(samples), np.uint8)
    found = np.full(len(samples), COLUMN["other"], np.uint8)
    kind[held], found[held] = spans.kind[owner[held]], phase[owner[held]]
    gap = np.where(held, -1, gaps.of(samples.start))
    known = np.flatnonzero(gap >= 0)
    found[known] = gaps.phase[gap[known]]
    in_open = known[gaps.open[gap[known]]]
    pair = (samples.value[in_open].astype(np.int64) << 16) | gaps.key[gap[in_open]]
    pairs, which = np.unique(pair, return_inverse=True)
    readings = tuple(loop.read(int(p) >> 16, int(p) & 0xFFFF) for p in pairs)
    reading = np.full(len(samples), -1, np.int64)
    reading[in_open] = which
    columns = np.array([COLUMN[r.phase] for r in readings], np.uint8)
    found[in_open] = columns[which] if len(columns) else 0
    closed = np.full(len(samples), -1, np.int64)
    closed[in_open] = gap[in_open]
    return Sampled(samples=samples, gap=closed, phase=found, kind=kind, reading=reading, readings=readings)


def tiled(samples: Table) -> Table:
    """Samples whose weights do not overlap: none reaches back beyond the one before it."""
    if len(samples) < 2:
        return samples
    weight = samples.duration
    weight[1:] = np.minimum(weight[1:], np.diff(samples.start))
    return replace(samples, end=samples.start + weight)


def split_gaps(sampled: Sampled, gaps: Gaps) -> Split:
    """Divides long gaps by their own samples, short ones by all samples between the same kinds of row."""
    index = np.flatnonzero(sampled.gap >= 0)
    gap = sampled.gap[index]
    kept = gaps.key[gap] != AT_EXIT
    index, gap = index[kept], gap[kept]
    length = gaps.end[gap] - gaps.start[gap]
    # Whole weights: cutting the first at the gap's start would short-change whatever comes first in it.
    weight = np.clip(sampled.samples.duration[index], 1, np.maximum(length, LONG_GAP_NS))
    long = length >= LONG_GAP_NS
    phase = sampled.phase[index]
    return Split(
        by_key=_shares(gaps.key[gap[~long]], phase[~long], weight[~long]),
        by_gap=_shares(gap[long], phase[long], weight[long]),
    )


def _shares(pool: npt.NDArray[Any], phase: Bytes, weight: Ints) -> dict[int, Floats]:
    names, which = np.unique(pool, return_inverse=True)
    sums = np.zeros((len(names), len(PHASES)))
    np.add.at(sums, (which, phase), weight)
    return {int(name): pool_sum / pool_sum.sum() for name, pool_sum in zip(names, sums, strict=True)}


#: The interpreter reaches bytecode boundaries at once: samples come this soon after the timer (us).
PYTHON_LATENESS_US = 100.0
#: Where the thread ran for less than this share of the time it could, others filled the caches meanwhile, and
#: a sample comes later at any line: 75 to 170 us were seen in a loop over pixels beside 8 other programs.
CROWDED_RATIO = 0.8
CROWDED_LATENESS_US = 150.0
#: More than this share of those that found the thread on a CPU: on a crowded machine the others are late,
#: whatever the line does.
PUNCTUAL_RATIO = 0.25
#: On a CPU or ready for one for less than this share: waiting. Computing lines have 0.9 and more; a line
#: shorter than the time between samples shares the neighbours' figure.
WAITING_RATIO = 0.5
#: A library module present in this share of a line's samples is what the line calls.
LIBRARY_RATIO = 0.8
#: Where a module's call is.
_MODULE = "torch.nn.modules.module"
#: So many frames above a line are kept: the loop that calls it is looked for among them.
CALLERS = 8
#: Sampled time is a count: where the exact time of its phase differs by more, something else is wrong.
SCALE_LIMITS = (0.5, 2.0)

ROLE_OF_PHASE: dict[str, Role] = {
    "data_wait": "input", "epoch_gap": "input", "forward": "forward", "evaluation": "evaluation",
    "logging": "logging", "checkpoint": "checkpoint",
}  # fmt: skip

LineKey = tuple[tuple[str, str, int], int, str, Role]


@dataclass
class _Line:
    frame: Frame
    phase: str
    role: Role
    weight: float = 0.0
    count: int = 0
    late: list[npt.NDArray[np.uint16]] = field(default_factory=list)
    cpu: float = 0.0
    cpu_weight: float = 0.0
    libraries: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    depth: dict[str, int] = field(default_factory=dict)
    functions: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # of what it calls
    statements: dict[Place, float] = field(default_factory=lambda: defaultdict(float))
    callers: dict[tuple[Frame, ...], float] = field(default_factory=lambda: defaultdict(float))
    entered: dict[Frame, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, samples: Table, index: Ints, stack: Stack, statement: Place | None) -> None:
        weights = samples.duration[index].astype(np.float64)
        weight = float(weights.sum())
        self.weight += weight
        self.count += len(index)
        self.late.append(samples.extra[index])
        known = samples.obj[index] != row.U16_MAX
        self.cpu += float((weights * np.minimum(samples.obj[index] / 1000, 1.0))[known].sum())
        self.cpu_weight += float(weights[known].sum())
        modules = [entry.split(":")[0] for entry in stack.library]
        for depth, module in enumerate(modules):
            self.depth[module] = max(self.depth.get(module, 0), depth)
        for module in dict.fromkeys(modules):
            self.libraries[module] += weight
        called = package_of(stack.library[0]) if stack.library else ""
        for depth, function in enumerate(stack.library):
            if package_of(function) == called:
                self.depth[function] = max(self.depth.get(function, 0), depth)
        for function in {one for one in stack.library if package_of(one) == called}:
            self.functions[function] += weight
        if statement is not None:
            self.statements[statement] += weight
            self.entered[_entered(stack, statement)] += weight
        self.callers[stack.frames[-2 : -2 - CALLERS : -1]] += weight

    def cost(self, seconds: float, places: Places, ran: float) -> LineCost:
        ratio = min(1.0, self.cpu / self.cpu_weight / ran) if self.cpu_weight else None
        entered = max(self.entered, key=lambda frame: self.entered[frame], default=None)
        return LineCost(
            place=self.frame.place(),
            phase=self.phase,
            seconds=seconds,
            num_samples=self.count,
            role=self.role,
            nature=_nature(np.concatenate(self.late), ratio, ran),
            on_cpu_ratio=1.0 if ratio is None else ratio,
            library=self._library(),
            within=self._within(),
            statement=max(self.statements, key=lambda place: self.statements[place], default=None),
            source=places.text(self.frame.file, self.frame.line),
            callers=tuple(frame.place() for frame in max(self.callers, key=lambda key: self.callers[key])),
            entered=entered.place() if entered is not None else None,
            calls_module=self.libraries.get(_MODULE, 0.0) >= 0.5 * max(1.0, self.weight),
        )

    def _library(self) -> str:
        usual = [m for m, w in self.libraries.items() if w >= LIBRARY_RATIO * self.weight]
        if usual:
            return max(reversed(usual), key=lambda m: self.depth[m])  # of equals the one seen further inside
        most = max(self.libraries, key=lambda m: self.libraries[m], default="")
        return most if most and self.libraries[most] >= 0.5 * self.weight else ""

    def _within(self) -> str:
        usual = [one for one, weight in self.functions.items() if weight >= 0.5 * self.weight]
        return max(usual, key=lambda one: self.depth[one], default="")


def _entered(stack: Stack, statement: Place) -> Frame:
    """The user's frame next inside that of a statement: further calls of the user's may lie within it."""
    at = (statement.file, statement.line)
    ways = pairwise(stack.frames)
    return next((inner for outer, inner in ways if (outer.file, outer.line) == at), stack.frames[-1])


def package_of(function: str) -> str:
    """``lightning`` of ``lightning.pytorch.trainer.trainer:Trainer.fit``."""
    return function.partition(":")[0].partition(".")[0]


def _nature(late_us: npt.NDArray[np.uint16], on_cpu: float | None, ran: float) -> Nature:
    """``ran``: of the time that the thread could run, the share in which it did."""
    if on_cpu is None:
        return "unknown"
    if on_cpu < WAITING_RATIO:
        return "waiting"
    punctual = float((late_us < (PYTHON_LATENESS_US if ran >= CROWDED_RATIO else CROWDED_LATENESS_US)).mean())
    return "python" if punctual > PUNCTUAL_RATIO * ran else "native"


class LineTally:
    """Adds samples up by source line."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.total_ns = 0.0
        self._lines: dict[LineKey, _Line] = {}

    def add(
        self, samples: Table, index: Ints, phase: str, role: Role, statement: Place | None = None
    ) -> None:
        """Samples of one stack; a stack without user frames counts in the total only."""
        self.total_ns += float(samples.duration[index].sum())
        stack = self.places.stacks.get(int(samples.value[index[0]]))
        if stack is None or not stack.frames:
            return
        frame = stack.frames[-1]
        key = (frame.function, frame.line, phase, role)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(frame=frame, phase=phase, role=role)
        line.add(samples, index, stack, statement)

    def costs(self, ran: float = 1.0, scale: dict[str, float] | None = None) -> tuple[LineCost, ...]:
        """Sorted by seconds; ``scale`` corrects the sampled time of a phase to its exact time."""
        scale = scale or {}
        costs = [
            line.cost(line.weight / 1e9 * scale.get(line.phase, 1.0), self.places, ran)
            for line in self._lines.values()
        ]
        return tuple(sorted(costs, key=lambda c: (-c.seconds, c.place.file, c.place.line)))


def merge_lines(costs: Iterable[LineCost]) -> tuple[LineCost, ...]:
    """Adds up the same line seen by several makers; keeps the nature of the one that saw most of it."""
    groups: dict[tuple[Place, str, str], list[LineCost]] = {}
    for cost in costs:
        groups.setdefault((cost.place, cost.phase, cost.role), []).append(cost)
    merged = []
    for group in groups.values():
        most = max(group, key=lambda cost: cost.seconds)
        seconds = sum(cost.seconds for cost in group)
        on_cpu = sum(cost.on_cpu_ratio * cost.seconds for cost in group) / seconds if seconds else 1.0
        samples = sum(cost.num_samples for cost in group)
        merged.append(replace(most, seconds=seconds, on_cpu_ratio=on_cpu, num_samples=samples))
    return tuple(sorted(merged, key=lambda c: (-c.seconds, c.place.file, c.place.line)))


def groups(keys: Ints) -> list[Ints]:
    """Indices of equal keys, one array per key."""
    if not len(keys):
        return []
    order = np.argsort(keys, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(keys[order])) + 1)


def main_lines(
    sampled: Sampled, loop: Loop, places: Places, span: tuple[int, int], exact: Floats, ran: float
) -> tuple[LineCost, ...]:
    """Lines of the main thread in the span and before it. ``exact``: seconds of the span by phase."""
    samples = sampled.samples
    inside = samples.began(*span)
    if span[1] <= span[0]:  # no step was seen: everything there is
        inside[:] = True
    index = np.flatnonzero(inside | (sampled.phase == COLUMN["startup"]))
    socket = sampled.kind[index] == row.SOCKET
    stack = samples.value[index].astype(np.int64)
    keys = (stack << 28) | ((sampled.reading[index] + 1) << 8) | (sampled.phase[index] << 1) | socket
    tally = LineTally(places)
    for group in groups(keys):
        at = index[group]
        phase = PHASES[int(sampled.phase[at[0]])]
        number = int(sampled.reading[at[0]])
        if number >= 0:
            role, statement = sampled.readings[number].role, sampled.readings[number].statement
        else:
            role = ROLE_OF_PHASE.get(phase, "other")
            if phase == "other" and sampled.kind[at[0]] == row.SOCKET:
                role = "viewer"
            found = loop.statement(places.stacks.get(int(samples.value[at[0]])))
            statement = found[0].place() if found else None
        tally.add(samples, at, phase, role, statement)
    weights = samples.duration[index]
    seen = np.bincount(sampled.phase[index], weights=weights, minlength=len(PHASES)) / 1e9
    return tally.costs(ran, _scales(seen, exact))


def _scales(seen: Floats, exact: Floats) -> dict[str, float]:
    scales = {}
    for column, phase in enumerate(PHASES):
        if seen[column] > 0 and exact[column] > 0 and phase != "startup":
            scales[phase] = float(np.clip(exact[column] / seen[column], *SCALE_LIMITS))
    return scales
