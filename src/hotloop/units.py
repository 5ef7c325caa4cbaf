"""Numbers as people read them: one place for the words of durations, sizes and shares."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A duration in the unit that leaves two or three significant digits: ``1.24 ms``, ``3 min 20 s``."""
    s = abs(seconds)
    sign = "-" if seconds < 0 else ""
    if s < 1e-6:
        return f"{sign}{s * 1e9:.0f} ns"
    if s < 1e-3:
        return f"{sign}{_digits(s * 1e6)} us"
    if s < 1:
        return f"{sign}{_digits(s * 1e3)} ms"
    if s < 60:
        return f"{sign}{_digits(s)} s"
    if s < 3600:
        return f"{sign}{int(s // 60)} min {int(s % 60)} s"
    return f"{sign}{int(s // 3600)} h {int(s % 3600 // 60)} min"


def parse_duration(text: str) -> float:
    """Seconds of ``90``, ``90s``, ``10m``, ``1.5h``, ``12ms``. Raises ValueError."""
    number = text.lower().rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :].lower() or "s"
    if unit not in _SECONDS:
        raise ValueError(f"{text!r} is no duration")
    seconds = float(number) * _SECONDS[unit]
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{text!r} is no duration")
    return seconds


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def size(num_bytes: float) -> str:
    """A size in binary units: ``133.6 MiB``."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{_digits(value)} {unit}"
        value /= 1024
    return f"{_digits(value)} TiB"


def share(ratio: float) -> str:
    """A share as whole percent, ``<1 %`` where it would round to nothing."""
    if 0 < ratio < 0.005:
        return "<1 %"
    return f"{ratio * 100:.0f} %"


def rate(per_second: float) -> str:
    """A rate with thousands separated: ``5,048``, ``12.4``, ``0.37``."""
    if per_second >= 100:
        return f"{per_second:,.0f}"
    return _digits(per_second)


def _digits(value: float) -> str:
    if abs(value) >= 99.5:
        return f"{value:.0f}"
    if abs(value) >= 9.95:
        return f"{value:.1f}"
    return f"{value:.2f}"
