"""One line of the examination."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

#: ``fact``: neither good nor bad; ``unknown``: could not be learned here, the value says why.
State = Literal["ok", "warn", "bad", "fact", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Line:
    """What was looked at, what was found, whether it is fine, and what to do where it is not."""

    topic: str
    name: str
    value: str
    state: State = "fact"
    advice: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


def judged(topic: str, name: str, value: str, advice: str, *, data: Mapping[str, Any] | None = None) -> Line:
    """A line that is fine where there is nothing to advise."""
    state: State = "warn" if advice else "ok"
    return Line(topic=topic, name=name, value=value, state=state, advice=advice, data=data or {})


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What checks look at: facts of the machine (``launch.machine``), of torch, and the environment.

    ``torch`` is what ``doctor.probe`` printed; ``data`` is the folder whose storage is measured; ``quick``:
    nothing that takes seconds.
    """

    machine: Mapping[str, Any]
    torch: Mapping[str, Any]
    environment: Mapping[str, str]
    data: Path
    quick: bool = False
