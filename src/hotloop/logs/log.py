"""One file as the rules see it: streams of numbers, the rate of training, its changes, its phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from hotloop.findings import ENTRIES, Finding, Place, Severity
from hotloop.logs.meanings import PHASE_ROLES, Floats, Stream
from hotloop.logs.pauses import level, segments
from hotloop.logs.rates import Series, rates
from hotloop.logs.text import Read


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file and what was recognized in it.

    ``lines`` counts lines, records or events; ``skipped`` those that were damaged and could not be read.
    ``recognized`` is one short text each: format, units, clock. ``rank`` is known from the name or the text.
    """

    file: str
    kind: str
    lines: int
    skipped: int = 0
    recognized: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is wrong with the file, in words: truncated, not UTF-8, ...
    rank: int | None = None
    num_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Point:
    """A rate at a step; ``time_s`` since the first record, where the file has a clock."""

    step: float
    rate: float
    unit: str  # "steps/s", "samples/s", "tokens/s"
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Change:
    """The rate is another one from ``step`` on. ``along`` says what else changed there, one text each."""

    step: float
    before: float
    after: float
    unit: str
    time_s: float | None = None
    line: int | None = None
    along: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase of ``hotloop.phases``, or a stage as the file names it, with its share of ``of``."""

    name: str
    s_per_step: float
    share: float
    of: str = "step"  # what the shares are of: "step", "stages", "device"


@dataclass(frozen=True, kw_only=True)
class Section:
    """Further facts: a title, lines for a terminal (at most 76 columns each), the same as data for JSON."""

    title: str
    lines: tuple[str, ...]
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one file gave. ``verdict`` is one sentence, empty where nothing can be said."""

    source: Source
    verdict: str = ""
    throughput: tuple[Point, ...] = ()
    changes: tuple[Change, ...] = ()
    phases: tuple[Phase, ...] = ()
    findings: tuple[Finding, ...] = ()
    sections: tuple[Section, ...] = ()


#: Shares of the step from which a cause is worth a word, and its severity (as in ``diagnose.limits``).
WORTH: Final = 0.05
_SEVERITIES: Final[tuple[tuple[float, Severity], ...]] = ((0.30, "high"), (0.10, "medium"), (WORTH, "low"))


def severity_of(share: float) -> Severity:
    """The severity of a cause that takes this share of the time."""
    return next((name for least, name in _SEVERITIES if share >= least), "info")


@dataclass(frozen=True)
class Log:
    """A file that was read. ``rank`` where its name or its lines tell one."""

    file: str
    read: Read
    rank: int | None = None

    @cached_property
    def series(self) -> Series | None:
        """The rate of training."""
        return rates(self.read.streams)

    @cached_property
    def starts(self) -> list[int]:
        """Indices into the series where a level begins, 0 first."""
        return segments(self.series.rate) if self.series is not None else [0]

    @cached_property
    def levels(self) -> list[float]:
        """The rate of each level."""
        if self.series is None:
            return []
        ends = [*self.starts[1:], len(self.series.rate)]
        return [level(self.series.rate[a:b]) for a, b in zip(self.starts, ends, strict=True)]

    @cached_property
    def step_s(self) -> float | None:
        """Mean seconds of a step as far as the file tells."""
        times = self.mean("time")
        if times is not None:
            return times
        if self.series is not None and self.series.unit == "steps/s":
            return float(np.mean(1.0 / self.series.rate))
        return None

    @cached_property
    def phases(self) -> list[Phase]:
        """Phases of the step that the file times, and what is left of it."""
        known = {PHASE_ROLES[role]: mean for role in PHASE_ROLES if (mean := self.mean(role)) is not None}
        if not known:
            return []
        named = sum(known.values())
        step = self.step_s
        if step is None or step < 0.98 * named:
            if not known.keys() >= {"forward", "backward"}:
                return []
            step = named
        rest = step - named
        parts = [Phase(name=name, s_per_step=s, share=s / step) for name, s in known.items() if step > 0]
        if rest > 0.005 * step:
            parts.append(Phase(name="other", s_per_step=rest, share=rest / step))
        return sorted(parts, key=lambda part: -part.s_per_step)

    @cached_property
    def stages(self) -> list[Phase]:
        """Durations under names of the file's own that come equally often: the parts of one whole, or of what
        the file says that they are shares of.
        """
        found, said = self._sums("stage:"), self._sums("share:")
        most = max((count for count, _ in found.values()), default=0)
        parts = {
            name: total / count for name, (count, total) in found.items() if 2 * count >= most and total > 0
        }
        parts.pop("total", None)
        stated = {name: total / count for name, (count, total) in said.items() if name in parts}
        if len(stated) >= 3:
            return [
                Phase(name=name, s_per_step=parts[name], share=share, of="stated")
                for name, share in sorted(stated.items(), key=lambda item: -item[1])
            ]
        numbered = {name: s for name, s in parts.items() if name.startswith("stage ")}
        parts = numbered if len(numbered) >= 3 else parts
        if len(parts) < 3:
            return []
        whole = sum(parts.values())
        return [
            Phase(name=name, s_per_step=s, share=s / whole, of="stages")
            for name, s in sorted(parts.items(), key=lambda item: -item[1])
        ]

    def _sums(self, prefix: str) -> dict[str, tuple[int, float]]:
        """Number and sum of the values of each role that begins so, by the rest of its name."""
        found: dict[str, tuple[int, float]] = {}
        for stream in self.trained():
            for role in stream.columns:
                values = stream.get(role) if role.startswith(prefix) else None
                if values is not None:
                    good = values[np.isfinite(values)]
                    count, total = found.get(role.removeprefix(prefix), (0, 0.0))
                    found[role.removeprefix(prefix)] = count + len(good), total + float(good.sum())
        return found

    def trained(self) -> list[Stream]:
        """Streams of training."""
        return [stream for stream in self.read.streams if stream.mode == "train"]

    def column(self, role: str) -> tuple[Stream, Floats] | None:
        """The training stream with most values of a role, and that column."""
        having = [(stream, column) for stream in self.trained() if (column := stream.get(role)) is not None]
        return max(having, key=lambda item: item[0].num_rows, default=None)

    def mean(self, role: str) -> float | None:
        """The mean of a role, without the first row where there are many (start-up)."""
        found = self.column(role)
        if found is None:
            return None
        good = np.flatnonzero(np.isfinite(found[1]))
        good = good[1:] if len(good) > 8 else good
        return float(found[1][good].mean())

    def finding(
        self,
        finding_id: str,
        message: str,
        evidence: tuple[str, ...],
        line: float,
        *,
        advice: str = "",
        share: float = 0.0,
        severity: Severity | None = None,
        remedies: tuple[str, ...] = (),
        data: dict[str, Any] | None = None,
    ) -> Finding:
        """A finding at a line of this file that costs a share of the step; with the advice of its home where
        none is given.
        """
        share = min(1.0, max(0.0, share))
        return Finding(
            id=finding_id,
            message=message,
            advice=advice or ENTRIES[finding_id].advice,
            evidence=evidence,
            cost_s_per_step=share * (self.step_s or 0.0),
            share=share,
            severity=severity or severity_of(share),
            where=Place(file=self.file, line=int(line)),
            remedies=remedies,
            data=data or {},
        )
