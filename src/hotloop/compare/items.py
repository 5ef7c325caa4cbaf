"""The lines of a verdict: one check each, passed, failed or not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["passed", "failed", "not-measured"]
Parity = Literal["exact", "within-noise", "differs", "not-measured"]


@dataclass(frozen=True, kw_only=True)
class Item:
    """``value`` is what was found, ``limit`` what was asked for; ``words`` say it to people.

    An entry of verify.json has these fields.
    """

    name: str
    status: Status
    value: Any = None
    limit: Any = None
    words: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """What two runs show beside each other, before it is known what is asked of them.

    ``outcome`` is one word (``equal``, ``bit-equal``, ``close``, ``indistinct``, ``differs``,
    ``not-measured``); ``at`` the first batch that differs, counted from 1; ``distance`` the largest
    difference that was looked at, ``limit`` what was allowed; ``missed``: a run has fewer updates.
    """

    outcome: str
    words: str
    at: int | None = None
    distance: float | None = None
    limit: float | None = None
    missed: bool = False


def unmeasured(name: str, words: str, limit: Any = None, value: Any = None) -> Item:
    """An item that cannot be judged, and why; nothing else is known of it but for ``value``."""
    return Item(name=name, status="not-measured", words=words, value=value, limit=limit)


def passed(name: str, ok: bool, words: str, value: Any = None, limit: Any = None) -> Item:
    """An item that was looked at."""
    return Item(name=name, status="passed" if ok else "failed", words=words, value=value, limit=limit)
