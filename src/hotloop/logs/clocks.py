"""Times of day and durations as people's logs write them, in seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

#: A time of day, behind its date where it has one.
CLOCK: Final = rb"(?:\d{4}[-/]\d\d[-/]\d\d[ T_]|\d\d[-/]\d\d |[IWE]\d{4} )?\d\d:\d\d:\d\d(?:[.,]\d+)?"
_CLOCK: Final = re.compile(CLOCK)
_TIME: Final = re.compile(rb"(\d\d):(\d\d):([\d.,]+)$")
_DURATION: Final = re.compile(rb"(?:(\d{1,5}) ?(?:days?|d),? ?)?(?:(\d{1,6}):)?(\d{1,9}):(\d\d(?:\.\d+)?)$")
_DIGITS: Final = re.compile(rb"\d+")


def moment(text: bytes) -> float:
    """Seconds since 1970, or since an unknown midnight, of the first clock in a text; NaN without one."""
    found = _CLOCK.search(text)
    time = _TIME.search(found[0]) if found else None
    if found is None or time is None:
        return float("nan")
    hours, minutes, seconds = int(time[1]), int(time[2]), float(time[3].replace(b",", b"."))
    if hours > 23 or minutes > 59:
        return float("nan")
    return _midnight(found[0][: time.start()]) + hours * 3600 + minutes * 60 + seconds


@lru_cache(maxsize=4096)
def _midnight(day: bytes) -> float:
    """Of ``2026-11-21 ``, ``11-21 ``, ``I1121 `` or of no day at all; NaN of no date (13th month)."""
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
