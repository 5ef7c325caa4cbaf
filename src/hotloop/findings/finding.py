"""The one shape of a verdict: what was found, what it costs, where it stands, what would remove it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

Severity = Literal["high", "medium", "low", "info"]
#: From worst to least.
SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low", "info")


@dataclass(frozen=True)
class Entry:
    """The home of one finding id; its run-time rule and its static rule share these words.

    ``title`` is one sentence that says what it means. ``advice`` is the default of what to do; a rule that
    knows more says its own. ``remedies`` are all that may answer it.
    """

    title: str
    advice: str
    remedies: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """A place in the user's source. ``line`` counts from 1."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def at_line(self) -> tuple[str, int]:
        """The line alone, whatever function it is said to be of."""
        return self.file, self.line

    @property
    def in_function(self) -> tuple[str, str]:
        """The function."""
        return self.file, self.function


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How much faster the run would be: ratio of step times with a 95 % interval."""

    ratio: float
    ci95: tuple[float, float]
    measured: bool


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A named cause.

    ``id`` is public (``family/name``) and has a page in docs/rules.
    ``cost_s_per_step`` is what removing the cause would save as far as the data shows, in seconds per step;
    work hidden behind other work costs nothing. ``cost_ci95`` is its interval over the steady steps.
    ``message`` is one sentence; ``advice`` is one sentence in the imperative; ``evidence`` holds the numbers.
    """

    id: str
    severity: Severity = "info"
    cost_s_per_step: float = 0.0
    cost_ci95: tuple[float, float] | None = None
    share: float = 0.0
    where: Place | None = None
    message: str
    advice: str
    evidence: tuple[str, ...]
    remedies: tuple[str, ...] = ()
    gain: Gain | None = None
    rank: int | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The finding as report.json carries it (schema 1)."""
        found = asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
