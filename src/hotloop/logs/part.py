"""What one file of somebody else's tells: the one shape every reader of ``logs`` gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotloop.findings import Finding


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
