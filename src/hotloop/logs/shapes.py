"""Lines of one shape: those that are alike but for their digits. One of them is read with care, all alike.

Logs repeat a few shapes of line a million times. What the numbers of a line are is learned from one line of
each shape (``tokens``, ``bars``); of the others only the numbers are taken, all at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop.errors import UsageError
from hotloop.logs.clocks import duration_s, moment
from hotloop.logs.meanings import MEASURED, NAMES, role_of
from hotloop.logs.streams import Floats, Ints
from hotloop.logs.tokens import ReadLine

#: What lines of one shape differ in.
DIGITS: Final = b"0123456789."
#: A number of a line as far as its digits go. Signs are words: they are part of the shape.
_NUMBER: Final = re.compile(rb"\d+(?:[.,]\d+|:\d\d)*+(?:[eE][-+]?\d+)?")
#: A clock stands at the beginning of its line.
_CLOCK_BYTES: Final = 100


@dataclass(frozen=True, kw_only=True)
class _Column:
    """``at``: which of the line's numbers; -1 where the value is ``factor`` itself (NaN, infinity)."""

    role: str
    factor: float
    at: int
    kind: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape:
    """What the numbers of all lines of a shape are."""

    read: ReadLine
    columns: tuple[_Column, ...]
    num_numbers: int

    def take(self, lines: Sequence[bytes]) -> dict[str, Floats]:
        """[n] columns by role; NaN of a line that has other numbers after all."""
        found = _NUMBER.findall(b"\n".join(lines))
        if len(found) != len(lines) * self.num_numbers:
            nothing = [b"nan"] * self.num_numbers
            each = map(_NUMBER.findall, lines)
            found = [text for own in each for text in (own if len(own) == self.num_numbers else nothing)]
        columns = {}
        for column in self.columns:
            texts = found[column.at :: self.num_numbers] if self.num_numbers else []
            if column.kind == "clock":
                values = np.array([moment(line[:_CLOCK_BYTES]) for line in lines])
            elif column.at < 0:
                values = np.full(len(lines), column.factor)
            elif column.kind == "duration":
                values = np.array([duration_s(text) for text in texts])
            else:
                values = numbers(texts) * column.factor
            columns[column.role] = 1 / values if column.kind == "inverse" else values
        return columns


def shape_of(read: ReadLine) -> Shape | None:
    """The shape of a line, None where it has nothing worth reading."""
    if not worth_reading(read.roles):
        return None
    starts = [match.start() for match in _NUMBER.finditer(read.line)]
    columns = []
    for token in read.tokens:
        text = read.line[token.start : token.end]
        first = next((i for i, start in enumerate(starts) if token.start <= start < token.end), -1)
        sign = -1.0 if text.startswith(b"-") else 1.0
        for i, (role, factor) in enumerate(token.roles):
            value = sign * factor if first >= 0 else float(text) if token.kind == "number" else np.nan
            at = first + i if first >= 0 else -1
            columns.append(_Column(role=role, factor=value, at=at, kind=token.kind))
    return Shape(read=read, columns=tuple(columns), num_numbers=len(starts))


def worth_reading(roles: Sequence[str]) -> bool:
    """Whether these roles measure something, or count steps against a clock."""
    there = set(roles)
    if there & MEASURED or any(role.startswith("stage:") for role in there):
        return True
    return bool(there & {"step", "samples"}) and bool(there & {"clock", "elapsed"})


def numbers(texts: Sequence[bytes]) -> Floats:
    """Texts as numbers, commas between their thousands or not; NaN for what is none."""
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return np.array([number(text) for text in texts])


def number(text: bytes) -> float:
    """One text as a number; NaN for what is none."""
    try:
        return float(text.replace(b",", b""))
    except ValueError:
        return float("nan")


# ``--pattern``: the user's own regular expression with named groups


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
