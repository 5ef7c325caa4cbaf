"""Samples: how the gaps divide, and what every source line costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hotloop.findings import Place
from hotloop.measure.attribution import AT_EXIT, LONG_GAP_NS, Bytes, Floats, Gaps, Split
from hotloop.measure.loop import Loop, Reading
from hotloop.measure.places import Frame, Places, Stack
from hotloop.measure.spans import Ints, Spans, Table
from hotloop.measure.steps import LineCost, Nature, Role
from hotloop.phases import COLUMN, PHASES
from hotloop.record import rows as row

#: A quarter of the samples came this soon after the timer: the interpreter reaches bytecode boundaries at
#: once (us). The quarter and not the mean: on a crowded machine many samples are late for want of a CPU.
PYTHON_LATENESS_US = 100.0
#: On a CPU for less than this share: waiting.
WAITING_RATIO = 0.3
#: Less sampled compute than this cannot tell how crowded the machine is (ns).
CROWDING_LEAST_NS = 100_000_000
#: A library module present in this share of a line's samples is what the line calls.
LIBRARY_RATIO = 0.8
#: Sampled time is a count: where the exact time of its phase differs by more, something else is wrong.
SCALE_LIMITS = (0.5, 2.0)

ROLE_OF_PHASE: dict[str, Role] = {
    "data_wait": "input", "epoch_gap": "input", "forward": "forward", "evaluation": "evaluation",
    "logging": "logging", "checkpoint": "checkpoint",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The main thread's samples: where each fell and what it is part of."""

    samples: Table
    gap: Ints  # [samples] index of the open gap, -1
    phase: Bytes  # [samples]
    readings: Sequence[Reading | None]  # [samples] for those in open gaps
    kind: Bytes  # [samples] kind of the innermost row, 0 in gaps


def read_samples(samples: Table, spans: Spans, phase: Bytes, gaps: Gaps, loop: Loop) -> Sampled:
    """Finds the row or the gap of every sample and reads its stack."""
    owner = innermost(spans, samples.start)
    kind = np.zeros(len(samples), np.uint8)
    kind[owner >= 0] = spans.kind[owner[owner >= 0]]
    gap = np.where(owner < 0, gaps.find(samples.start), -1)
    found = np.full(len(samples), COLUMN["other"], np.uint8)
    found[owner >= 0] = phase[owner[owner >= 0]]
    in_gap = gap >= 0
    found[in_gap] = gaps.phase[gap[in_gap]]
    is_open = in_gap & gaps.open[np.maximum(gap, 0)] if len(gaps) else in_gap
    readings: list[Reading | None] = [None] * len(samples)
    keys = gaps.key[np.maximum(gap, 0)] if len(gaps) else np.zeros(len(samples), np.uint16)
    for i in np.flatnonzero(is_open):
        reading = loop.read(int(samples.value[i]), int(keys[i]))
        readings[i] = reading
        found[i] = COLUMN[reading.phase]
    return Sampled(samples=samples, gap=np.where(is_open, gap, -1), phase=found, readings=readings, kind=kind)


def innermost(spans: Spans, times: Ints) -> Ints:
    """[times] index of the innermost row around each; -1 in gaps."""
    owner = np.full(len(times), -1, np.int64)
    if not len(spans) or not len(times):
        return owner
    for index in spans.by_level():
        if len(index):
            at = np.searchsorted(spans.start[index], times, side="right") - 1
            holder = index[np.maximum(at, 0)]
            inside = (at >= 0) & (times < spans.end[holder])
            owner[inside] = holder[inside]
    return owner


def split_gaps(sampled: Sampled, gaps: Gaps) -> Split:
    """Divides long gaps by their own samples, short ones by all samples between the same kinds of row."""
    by_key: dict[int, Floats] = defaultdict(lambda: np.zeros(len(PHASES)))
    by_gap: dict[int, Floats] = defaultdict(lambda: np.zeros(len(PHASES)))
    weight = sampled.samples.duration
    for i in np.flatnonzero(sampled.gap >= 0):
        gap = int(sampled.gap[i])
        if gaps.key[gap] == AT_EXIT:
            continue
        length = int(gaps.end[gap] - gaps.start[gap])
        # Whole weights: cutting the first at the gap's start would short-change whatever comes first in it.
        pool = by_gap[gap] if length >= LONG_GAP_NS else by_key[int(gaps.key[gap])]
        pool[sampled.phase[i]] += max(1, min(int(weight[i]), max(length, LONG_GAP_NS)))
    return Split(
        by_key={key: pool / pool.sum() for key, pool in by_key.items()},
        by_gap={gap: pool / pool.sum() for gap, pool in by_gap.items()},
    )


@dataclass
class _Line:
    frame: Frame
    phase: str
    role: Role
    weight: float = 0.0
    count: int = 0
    late: list[float] = field(default_factory=list)
    cpu: float = 0.0
    cpu_weight: float = 0.0
    libraries: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    depth: dict[str, int] = field(default_factory=dict)
    statements: dict[Place, float] = field(default_factory=lambda: defaultdict(float))

    def add(
        self, weight: float, late: float, cpu: float | None, stack: Stack, statement: Place | None
    ) -> None:
        self.weight += weight
        self.count += 1
        self.late.append(late)
        if cpu is not None:
            self.cpu += weight * cpu
            self.cpu_weight += weight
        for depth, entry in enumerate(stack.library):
            module = entry.split(":")[0]
            if self.depth.get(module, -1) < depth or module not in self.depth:
                self.depth[module] = depth
        for module in {entry.split(":")[0] for entry in stack.library}:
            self.libraries[module] += weight
        if statement is not None:
            self.statements[statement] += weight

    def cost(self, seconds: float, places: Places, crowding: float) -> LineCost:
        ratio = min(1.0, self.cpu / self.cpu_weight / crowding) if self.cpu_weight else None
        return LineCost(
            place=self.frame.place(),
            phase=self.phase,
            seconds=seconds,
            num_samples=self.count,
            role=self.role,
            nature=_nature(float(np.quantile(self.late, 0.25)), ratio),
            on_cpu_ratio=1.0 if ratio is None else ratio,
            library=self._library(),
            statement=max(self.statements, key=lambda place: self.statements[place], default=None),
            source=places.text(self.frame.file, self.frame.line),
        )

    def _library(self) -> str:
        usual = [m for m, w in self.libraries.items() if w >= LIBRARY_RATIO * self.weight]
        if usual:
            return max(usual, key=lambda m: self.depth[m])
        most = max(self.libraries, key=lambda m: self.libraries[m], default="")
        return most if most and self.libraries[most] >= 0.5 * self.weight else ""


def _nature(late_us: float, on_cpu: float | None) -> Nature:
    if on_cpu is not None and on_cpu < WAITING_RATIO:
        return "waiting"
    if on_cpu is None:
        return "unknown"
    return "python" if late_us < PYTHON_LATENESS_US else "native"


class LineTally:
    """Adds samples up by source line."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._lines: dict[tuple[FunctionLine, str, Role], _Line] = {}
        self.total_ns = 0.0

    def add(self, samples: Table, i: int, phase: str, role: Role, statement: Place | None = None) -> None:
        """One sample; ``stack`` ids without user frames count in the total only."""
        weight = float(samples.end[i] - samples.start[i])
        self.total_ns += weight
        stack = self.places.stacks.get(int(samples.value[i]))
        if stack is None or not stack.frames:
            return
        frame = stack.frames[-1]
        key = ((*frame.function, frame.line), phase, role)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(frame=frame, phase=phase, role=role)
        share = int(samples.obj[i])
        cpu = None if share == row.U16_MAX else min(1.0, share / 1000)
        line.add(weight, float(samples.extra[i]), cpu, stack, statement)

    def costs(self, crowding: float, scale: dict[str, float] | None = None) -> tuple[LineCost, ...]:
        """Sorted by seconds; ``scale`` corrects the sampled time of a phase to its exact time."""
        scale = scale or {}
        costs = [
            line.cost(line.weight / 1e9 * scale.get(line.phase, 1.0), self.places, crowding)
            for line in self._lines.values()
        ]
        return tuple(sorted(costs, key=lambda c: (-c.seconds, c.place.file, c.place.line)))


FunctionLine = tuple[str, str, int, int]


def crowding_of(sampled: Sampled, accelerator: bool) -> float:
    """How much of a CPU the training thread gets when it computes: below 1 where the machine is crowded.

    Forward and backward on a CPU never wait by themselves, so what they miss is other processes' share.
    """
    samples = sampled.samples
    computes = np.isin(sampled.phase, (COLUMN["forward"], COLUMN["backward"])) & (samples.obj != row.U16_MAX)
    weight = samples.duration[computes].astype(np.float64)
    if accelerator or weight.sum() < CROWDING_LEAST_NS:
        return 1.0
    share = np.minimum(samples.obj[computes] / 1000, 1.0)
    return float(np.clip((weight * share).sum() / weight.sum(), 0.05, 1.0))


def main_lines(
    sampled: Sampled, loop: Loop, places: Places, span: tuple[int, int], exact: Floats, crowding: float
) -> tuple[LineCost, ...]:
    """Lines of the main thread in the span and before it. ``exact``: seconds of the span by phase."""
    samples = sampled.samples
    tally = LineTally(places)
    seen = np.zeros(len(PHASES))
    startup = COLUMN["startup"]
    for i in range(len(samples)):
        column = int(sampled.phase[i])
        inside = span[0] <= samples.start[i] < span[1] or span[1] <= span[0]
        if not inside and column != startup:
            continue
        phase = PHASES[column]
        reading = sampled.readings[i]
        role: Role = reading.role if reading else ROLE_OF_PHASE.get(phase, "other")
        if sampled.kind[i] == row.SOCKET and phase == "other":
            role = "viewer"
        statement = reading.statement if reading else _statement(loop, places, int(samples.value[i]))
        tally.add(samples, i, phase, role, statement)
        seen[column] += samples.end[i] - samples.start[i]
    return tally.costs(crowding, _scales(seen / 1e9, exact))


def _statement(loop: Loop, places: Places, stack_id: int) -> Place | None:
    stack = places.stacks.get(stack_id)
    found = loop.statement(stack) if stack else None
    return found[0].place() if found else None


def _scales(seen: Floats, exact: Floats) -> dict[str, float]:
    scales = {}
    for column, phase in enumerate(PHASES):
        if seen[column] > 0 and exact[column] > 0 and phase != "startup":
            scales[phase] = float(np.clip(exact[column] / seen[column], *SCALE_LIMITS))
    return scales
