"""Times of day and durations as people's logs write them, in seconds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

#: Date and minute in one group, seconds in another: minutes repeat, so that each is read once.
CLOCK: Final = (
    rb"(\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d|\d\d[-/]\d\d \d\d:\d\d|[IWE]\d{4} \d\d:\d\d|\d\d:\d\d)"
    rb":(\d\d(?:[.,]\d+)?)"
)
_DURATION: Final = re.compile(rb"(?:(\d{1,5}) ?(?:days?|d),? ?)?(?:(\d{1,6}):)?(\d{1,9}):(\d\d(?:\.\d+)?)$")
_DIGITS: Final = re.compile(rb"\d+")


class Clock:
    """Turns the two groups of ``CLOCK`` into seconds since 1970, or since an unknown midnight."""

    def __init__(self) -> None:
        self._minutes: dict[bytes, float] = {}
        self._days: dict[bytes, float] = {}

    def seconds(self, minute: bytes, second: bytes) -> float:
        """NaN where the text is no date (13th month)."""
        return self._minute(minute) + float(second.replace(b",", b"."))

    def all_seconds(
        self, minutes: Sequence[bytes], seconds: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """The same for many at once; ``seconds`` [n] are numbers already."""
        known = {minute: self._minute(minute) for minute in set(minutes)}
        return np.fromiter(map(known.__getitem__, minutes), np.float64, len(minutes)) + seconds

    def _minute(self, minute: bytes) -> float:
        known = self._minutes.get(minute)
        if known is None:
            if len(self._minutes) > 100_000:
                self._minutes.clear()
            day = minute[:-5]
            if day not in self._days:
                self._days[day] = _midnight(day)
            known = self._minutes[minute] = self._days[day] + _since_midnight(minute[-5:])
        return known


def _since_midnight(minute: bytes) -> float:
    hours, minutes = int(minute[:2]), int(minute[3:])
    return hours * 3600.0 + minutes * 60.0 if hours < 24 and minutes < 60 else float("nan")


def _midnight(day: bytes) -> float:
    """Of ``2026-11-21 ``, ``11-21 ``, ``I1121 `` or of no day at all."""
    parts = [int(part) for part in _DIGITS.findall(day)]
    if day[:1] in b"IWE" and len(parts) == 1:
        parts = [2000, parts[0] // 100, parts[0] % 100]
    elif len(parts) == 2:
        parts = [2000, *parts]
    elif not parts:
        parts = [2000, 1, 1]
    try:
        return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except (ValueError, TypeError):
        return float("nan")


def duration_s(text: bytes) -> float:
    """``1 day, 0:12:33`` or ``00:45`` in seconds, NaN for anything else."""
    match = _DURATION.match(text.strip())
    if not match:
        return float("nan")
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400.0 + int(hours or 0) * 3600.0 + int(minutes) * 60.0 + float(seconds)
