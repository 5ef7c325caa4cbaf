"""Text logs of any shape: learn the shapes of their lines, then read every line that has one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.errors import UsageError
from hotloop.logs.meanings import MEASURED, NAMES, Floats, Ints, Stream, role_of
from hotloop.logs.pauses import Pauses, Piece
from hotloop.logs.reading import Chunk, Damage, chunks
from hotloop.logs.tokens import ReadLine, duration_s, moment, read_bar, read_line

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


#: Lines looked at with care per chunk; the shapes of a log show within its first thousand lines.
_FIRST_LINES: Final = 2000
_MORE_LINES: Final = 150
_LONGEST_LINE: Final = 4000
_MAX_STREAMS: Final = 256
_MAX_SHAPES: Final = 20_000
#: Names that a number belongs to: ``Stage 8`` is another thing than ``Stage 7``.
_NUMBERED: Final = re.compile(rb"(?i)(?:stage|layer|block|level|module|group|head|part|scale)[ _#-]")
_THEIR_NUMBER: Final = re.compile(_NUMBERED.pattern + rb"*(\d+)")
_LOSS_LINES: Final = 5
_HEAD_BYTES: Final = 1 << 18
#: Of a configuration printed at the top, where all mentions agree.
_NUM_WORKERS: Final = re.compile(
    rb"\b(?:[\w.]*num_workers|workers_per_gpu|dataloader_workers|total_workers)['\"]?\s*[:=]\s*(\d+)\b", re.I
)


@dataclass(kw_only=True)
class Read:
    """What was read from one file, of whatever format."""

    streams: list[Stream] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)
    pauses: Pauses = field(default_factory=Pauses)
    non_finite: list[tuple[int, float | None]] = field(default_factory=list)  # line, step
    num_non_finite: int = 0
    num_losses: int = 0
    num_workers: int | None = None  # of a printed config


def read_text(path: Path, pattern: re.Pattern[bytes] | None = None) -> Read:
    """Streams of a text log; by the user's own pattern where one is given."""
    reader = _TextReader()
    read = reader.read
    for chunk in chunks(path, read.damage):
        if chunk.first_line == 1:
            printed = {int(value) for value in _NUM_WORKERS.findall(chunk.body[:_HEAD_BYTES])}
            read.num_workers = printed.pop() if len(printed) == 1 else None
        if pattern is None:
            reader.shapes(chunk)
        else:
            starts, columns = rows_of(pattern, chunk.body)
            reader.hand_on(chunk, [(None, starts, columns)])
    read.streams = [stream for stream in reader.streams.values() if stream.num_rows]
    return read


_Taken = tuple[Shape | None, Ints, dict[str, Floats]]


class _TextReader:
    """Shapes and streams of a text log, chunk by chunk."""

    def __init__(self) -> None:
        self.read = Read()
        self.known: dict[bytes, Shape | None] = {}
        self.streams: dict[tuple[object, ...], Stream] = {}

    def shapes(self, chunk: Chunk) -> None:
        """All lines whose shape says what their numbers are."""
        starts = np.flatnonzero(np.frombuffer(chunk.body, dtype=np.uint8) == 10).astype(np.int64)
        lines = chunk.body[1:].split(b"\n")
        alike = _alike(lines, chunk.body[1:].translate(None, DIGITS).split(b"\n"))
        self._learn(alike, lines)
        known = [(shape, own) for words, own in alike.items() if (shape := self.known.get(words)) is not None]
        taken = [(shape, starts[np.array(own)], shape.take([lines[i] for i in own])) for shape, own in known]
        self.hand_on(chunk, taken)

    def _learn(self, alike: dict[bytes, list[int]], lines: list[bytes]) -> None:
        """New shapes: half of those that may be looked at in order, the rest spread over the chunk."""
        limit = _MORE_LINES if self.known else _FIRST_LINES
        fresh = [words for words in alike if words not in self.known and 0 < len(words) <= _LONGEST_LINE]
        if len(fresh) > limit:
            spread = np.linspace(limit // 2, len(fresh) - 1, limit - limit // 2).astype(int)
            fresh = [*fresh[: limit // 2], *(fresh[i] for i in spread)]
        for words in fresh[: _MAX_SHAPES - len(self.known)]:
            line = lines[alike[words][0]]
            self.known[words] = shape_of(read_bar(line) or read_line(line))

    def hand_on(self, chunk: Chunk, taken: Sequence[_Taken]) -> None:
        """Rows to their streams, and to what looks for pauses."""
        pieces = []
        newlines = np.flatnonzero(np.frombuffer(chunk.raw, dtype=np.uint8) == 10)
        for shape, starts, columns in taken:
            if not len(starts):
                continue
            number = np.searchsorted(newlines, starts, side="right")
            columns["line"] = np.asarray(chunk.first_line - 1 + number, float)
            columns["at"] = np.asarray(starts + self.read.damage.num_bytes, float)
            note_losses(self.read, columns)
            mode = "train" if shape is None else shape.read.mode
            bar = shape.read.name if shape is not None and shape.read.unit else None
            pieces.append(Piece(mode=mode, starts=starts, columns=dict(columns), bar=bar))
            ranks = columns.pop("rank", np.zeros(0))
            for rank in np.unique(ranks[np.isfinite(ranks)]) if len(ranks) else [None]:
                own = columns if rank is None else {k: v[ranks == rank] for k, v in columns.items()}
                stream = self._stream(shape, None if rank is None else int(rank), own)
                if stream is not None:
                    stream.add(own)
        self.read.pauses.watch(pieces, chunk.body)

    def _stream(self, shape: Shape | None, rank: int | None, columns: dict[str, Floats]) -> Stream | None:
        name, mode, unit = (
            ("", "train", "") if shape is None else (shape.read.name, shape.read.mode, shape.read.unit)
        )
        key = (name, mode, rank, bool(unit) or frozenset(columns))
        if key not in self.streams:
            if len(self.streams) >= _MAX_STREAMS:
                return None
            self.streams[key] = Stream(name=name, mode=mode, rank=rank, unit=unit or "it", bar=bool(unit))
        return self.streams[key]


def _alike(lines: list[bytes], words: list[bytes]) -> dict[bytes, list[int]]:
    """Lines by what they have besides digits, and by the numbers that are part of names."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for i, text in enumerate(words):
        found[text].append(i)
    for text in [text for text in found if _NUMBERED.search(text)]:
        for i in found.pop(text):
            found[text + b" ".join(_THEIR_NUMBER.findall(lines[i]))].append(i)
    return found


def note_losses(read: Read, columns: dict[str, Floats]) -> None:
    """Count the losses of these rows and remember the first that are not finite."""
    losses = columns.get("loss")
    if losses is None:
        return
    there = columns.pop("has_loss", np.ones(len(losses))) > 0
    read.num_losses += int(there.sum())
    bad = np.flatnonzero(there & ~np.isfinite(losses))
    read.num_non_finite += len(bad)
    counter = columns.get("step", columns.get("epoch"))
    found = [(int(columns["line"][at]), float(counter[at]) if counter is not None else None) for at in bad]
    read.non_finite = sorted([*read.non_finite, *found[:_LOSS_LINES]], key=lambda one: one[0])[:_LOSS_LINES]
