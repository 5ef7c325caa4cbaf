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
            known = self._minutes[minute] = _minute(minute)
        return known


def _minute(text: bytes) -> float:
    parts = [int(part) for part in _DIGITS.findall(text)]
    if text[:1] in b"IWE" and len(parts) == 3:
        parts = [2000, parts[0] // 100, parts[0] % 100, *parts[1:]]
    elif len(parts) == 4:
        parts = [2000, *parts]
    elif len(parts) == 2:
        parts = [2000, 1, 1, *parts]
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
