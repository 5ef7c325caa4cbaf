"""``--pattern``: the user's own regular expression with named groups."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from hotloop.errors import UsageError
from hotloop.logs.clocks import duration_s, moment
from hotloop.logs.meanings import NAMES, role_of
from hotloop.logs.shapes import number, numbers
from hotloop.logs.streams import Floats, Ints

_UNITS: Final = ("_ms", "_us", "_s", "_mb", "_gb")


def compiled(text: str) -> re.Pattern[bytes]:
    """The expression for bytes; a UsageError says what is wrong with it."""
    try:
        pattern = re.compile(text.encode(), re.MULTILINE)
    except re.error as error:
        place = f" at position {error.pos}" if error.pos is not None else ""
        raise UsageError(f"--pattern is no regular expression: {error.msg}{place}") from error
    known = [name for name in pattern.groupindex if _role(name)]
    if not known:
        raise UsageError(
            "--pattern has no named group that is known",
            hint="for example: step (?P<step>\\d+).*?(?P<time_ms>[\\d.]+) ms; groups: "
            + ", ".join(sorted(NAMES)),
        )
    return pattern


def rows_of(pattern: re.Pattern[bytes], body: bytes) -> tuple[Ints, dict[str, Floats]]:
    """Every match in a chunk as a row: where its line starts, and columns by role."""
    matches = list(pattern.finditer(body))
    columns = {}
    for name in pattern.groupindex:
        found = _role(name)
        if found is None or not matches:
            continue
        role, factor = found
        texts = [match[name] or b"" for match in matches]
        if role == "clock":
            columns[role] = np.array([moment(text) if b":" in text else number(text) for text in texts])
        elif role == "elapsed" and any(b":" in text for text in texts):
            columns[role] = np.array([duration_s(text) for text in texts])
        else:
            columns[role] = numbers(texts) * factor
    # A match may begin on the line's own first byte or on the separator before it.
    starts = [max(0, body.rfind(b"\n", 0, max(1, match.end()))) for match in matches]
    return np.array(starts, dtype=np.int64), columns


def _role(name: str) -> tuple[str, float] | None:
    if name in NAMES or name == "total":
        return name, 1.0
    for unit in _UNITS:
        if name.endswith(unit):
            role = name.removesuffix(unit)
            return role_of("data_time" if role == "data" else role, unit[1:])
    return role_of(name.replace("_per_s", "/s"), "")
