"""Lines of one shape as one regular expression, learned from an example: hundreds of MB/s of matching.

Logs repeat a few shapes of line a million times. One line of each is read with care (``tokens``); from it a
pattern is made in which the words are literal and the numbers are not, and that runs over whole chunks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop.logs.clocks import CLOCK, Clock, duration_s
from hotloop.logs.meanings import MEASURED
from hotloop.logs.tokens import ReadLine, Token, rank_prefix

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Possessive throughout: a line that does not fit must fail at once, whatever it holds.
_LETTERS: Final = b"eEnaifNAIFty"
_DURATION: Final = rb"(?:\d++ days?,? *+)?+[\d:.]++"
_DECIMAL_COMMA: Final = re.compile(rb"[-+]?(?:0,\d+|\d+,(?!\d{3}(?!\d))\d+)(?![\d.,])")
#: Counts: a comma in one parts its thousands.
_WHOLE: Final = frozenset({"step", "total", "samples"})
_BLANK: Final = re.compile(rb"[ \t]+")
#: Exact patterns for one signature; beyond it one looser pattern takes their place.
_MAX_VARIANTS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What a pattern took from a chunk: [n] start offsets and one [n] column per role.

    Of every ``stride`` lines one was read; ``ends`` [n] is then where the skipped ones end.
    """

    starts: Ints
    columns: dict[str, Floats]
    stride: int = 1
    ends: Ints | None = None

    def only(self, kept: npt.NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        ends = self.ends[kept] if self.ends is not None else None
        columns = {role: column[kept] for role, column in self.columns.items()}
        return Rows(starts=self.starts[kept], columns=columns, stride=self.stride, ends=ends)


@dataclass(kw_only=True, eq=False)
class Template:
    """A shape of line. ``signature`` is mode and roles; ``take`` reads its lines of a chunk.

    ``skip`` matches the beginning of a further line of the shape, empty where lines cannot be skipped.
    """

    signature: tuple[str, ...]
    pattern: re.Pattern[bytes]
    tokens: tuple[Token, ...]
    ranked: bool
    example: bytes
    loose: bool = False
    skip: bytes = b""
    hits: int = 0
    _commas: bool = False
    _clock: Clock = field(default_factory=Clock)
    _thinned: dict[int, re.Pattern[bytes]] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        """``train`` or ``evaluation``."""
        return self.signature[0]

    def take(self, body: bytes, stride: int = 1) -> Rows | None:
        """Rows of a chunk, one of every ``stride`` lines in a row; None where no line has this shape."""
        if not self.skip or self.ranked:
            stride = 1
        matches = list((self._thin(stride) if stride > 1 else self.pattern).finditer(body))
        if not matches:
            return None
        groups = list(zip(*map(re.Match.groups, matches), strict=True))
        self.hits += len(matches)
        columns: dict[str, Floats] = {}
        at = 0
        self._commas = self._commas or self._has_decimal_commas(groups)
        if self.ranked:
            columns["rank"] = numbers(groups[at])
            at += 1
        for token in self.tokens:
            at = self._convert(token, groups, at, columns)
        starts = np.fromiter(map(re.Match.start, matches), np.int64, len(matches))
        ends = np.fromiter(map(re.Match.end, matches), np.int64, len(matches)) if stride > 1 else None
        return Rows(starts=starts, columns=columns, stride=stride, ends=ends)

    def _thin(self, stride: int) -> re.Pattern[bytes]:
        if stride not in self._thinned:
            self._thinned[stride] = re.compile(thinned(self.pattern.pattern, self.skip, stride))
        return self._thinned[stride]

    def _has_decimal_commas(self, groups: Sequence[Sequence[bytes]]) -> bool:
        """Whether any column of measurements has them: then all columns of the shape do."""
        at = int(self.ranked)
        for token in self.tokens:
            whole = token.kind not in ("number", "pair") or _WHOLE.intersection(r for r, _ in token.roles)
            size = 2 if token.kind == "clock" else len(token.roles)
            if token.commas and not whole and any(map(decimal_commas, groups[at : at + size])):
                return True
            at += size
        return False

    def _convert(
        self, token: Token, groups: Sequence[Sequence[bytes]], at: int, out: dict[str, Floats]
    ) -> int:
        if token.kind == "clock":
            seconds = groups[at + 1]
            if b"," in seconds[0]:
                seconds = [text.replace(b",", b".") for text in seconds]
            out["clock"] = self._clock.all_seconds(groups[at], numbers(seconds))
            return at + 2
        for role, factor in token.roles:
            if token.kind == "duration":
                out[role] = np.array([duration_s(text) for text in groups[at]])
            else:
                out[role] = numbers(groups[at], self._commas and role not in _WHOLE)
                if factor != 1.0:
                    out[role] *= factor
            at += 1
        return at


def template_of(read: ReadLine) -> Template | None:
    """The shape of a line, None where the line has nothing worth reading."""
    needed = tuple(token for token in read.tokens if token.roles)
    roles = read.roles
    if not worth_reading(roles):
        return None
    source, skip, ranked = _exact(read, needed)
    return Template(
        signature=(read.mode, *roles),
        pattern=re.compile(source),
        skip=skip,
        tokens=needed,
        ranked=ranked,
        example=read.line[:400],
    )


def loosened(template: Template, read: ReadLine) -> Template:
    """The same roles with anything between them, for lines whose words differ from line to line."""
    source, ranked = _loose(read, template.tokens)
    return Template(
        signature=template.signature,
        pattern=re.compile(source),
        tokens=template.tokens,
        ranked=ranked,
        example=template.example,
        loose=True,
    )


class Templates:
    """All shapes of one file, those with more roles first."""

    def __init__(self, *, limit: int = 48) -> None:
        self.known: list[Template] = []
        self._sources: set[bytes] = set()
        self._limit = limit

    def learn(self, read: ReadLine) -> Template | None:
        """The new shape to look for, None where the line has none or its shape is known."""
        line = b"\n" + read.line + b"\n"
        if any(known.pattern.match(line) for known in self.known):
            return None
        new = template_of(read)
        if new is None or new.pattern.pattern in self._sources or len(self.known) >= self._limit:
            return None
        same = [known for known in self.known if known.signature == new.signature]
        if any(known.loose for known in same):
            return None
        if len(same) + 1 >= _MAX_VARIANTS:
            new = loosened(new, read)
            self.known = [known for known in self.known if known not in same]
        self._sources.add(new.pattern.pattern)
        self.known.append(new)
        self.known.sort(key=lambda known: -len(known.signature))
        return new


def worth_reading(roles: Sequence[str]) -> bool:
    """Whether these roles measure something, or count steps against a clock."""
    there = set(roles)
    if there & MEASURED or any(role.startswith("stage:") for role in there):
        return True
    return bool(there & {"step", "samples"}) and bool(there & {"clock", "elapsed"})


def thinned(source: bytes, skip: bytes, stride: int) -> bytes:
    """A pattern that takes a line and passes over up to ``stride`` further ones of its shape.

    One more than asked: whatever comes every 2, 4, 8 or 16 lines (workers do) is then seen at all its phases.
    """
    return source + rb"[^\n]*(?:" + skip + rb"[^\n]*){0," + str(stride).encode() + rb"}"


def decimal_commas(texts: Sequence[bytes]) -> bool:
    """Whether a comma stands before the decimals in any of these: ``0,25``, ``12,5``; not ``1,250``."""
    return any(b"," in text and _DECIMAL_COMMA.match(text) for text in texts)


def numbers(texts: Sequence[bytes], commas: bool | None = None) -> Floats:
    """Texts as numbers, all with decimal commas or none (told by themselves); NaN for what is none."""
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        commas = decimal_commas(texts) if commas is None else commas
        return np.array([number(text, commas) for text in texts])


def number(text: bytes, commas: bool = False) -> float:
    """One text as a number, with a decimal comma or thousands separators; NaN for what is none."""
    if commas and text.count(b",") == 1 and b"." not in text:
        text = text.replace(b",", b".")
    try:
        return float(text.replace(b",", b""))
    except ValueError:
        return float("nan")


def _exact(read: ReadLine, needed: tuple[Token, ...]) -> tuple[bytes, bytes, bool]:
    """The pattern, the pattern of its beginning up to the first counter or value, whether it has a rank."""
    line, last = read.line, needed[-1]
    at, parts, ranked = _prefix(line)
    skip = b""
    for token in read.tokens:
        if token.start < at:
            continue
        parts.append(_literal(line[at : token.start]))
        wanted = bool(token.roles)
        if wanted and not skip and token.kind != "clock":
            skip = re.sub(rb"(?<!\\)\((?!\?)", rb"(?:", b"".join(parts)) + rb"[-+\d.]"
        parts.append(
            re.escape(line[token.start : token.end]) if token.name else _captured(token, wanted, line)
        )
        at = token.end
        if token is last:
            break
    parts.append(_literal(line[at : max(at + 1, last.unit_end)]))
    return b"".join(parts), skip, ranked


def _loose(read: ReadLine, needed: tuple[Token, ...]) -> tuple[bytes, bool]:
    line = read.line
    at, parts, ranked = _prefix(line)
    for token in needed:
        near = line[max(at, token.start - 16) : token.start]
        word = re.search(rb"[^\s\d]*\s*[^\s\d]*\s*$", near)
        literal = word[0] if word else b""
        parts += [rb"(?>[^\n]*?", _literal(literal), rb"(?=[-+\d.naifNAI]))", _captured(token, True, line)]
        at = token.end
    parts.append(_literal(line[at : max(at + 1, needed[-1].unit_end)]))
    return b"".join(parts), ranked


def _prefix(line: bytes) -> tuple[int, list[bytes], bool]:
    match = rank_prefix(line)
    if match is None:
        return 0, [rb"\n"], False
    before, after = line[: match.start(1)], line[match.end(1) : match.end()]
    return match.end(), [rb"\n", _literal(before), rb"(\d{1,4})", _literal(after)], True


def _literal(text: bytes) -> bytes:
    """Words as they are, blanks of any length; none at the ends, where numbers are padded."""
    out = []
    pieces = _BLANK.split(text)
    for i, piece in enumerate(pieces):
        if i:
            edge = (i == len(pieces) - 1 and not piece) or (i == 1 and not pieces[0])
            out.append(rb"[ \t]*+" if edge else rb"[ \t]++")
        out.append(re.escape(piece))
    joined = b"".join(out)
    return joined if joined.endswith(rb"[ \t]*+") or not text or text[-1:].isalnum() else joined + rb" *+"


def _captured(token: Token, wanted: bool, line: bytes) -> bytes:
    group: Callable[[bytes], bytes] = (lambda body: b"(" + body + b")") if wanted else (lambda body: body)
    if token.kind == "clock":
        return CLOCK if wanted else re.sub(rb"\((?!\?)", rb"(?:", CLOCK)
    if token.kind == "duration":
        return group(_DURATION)
    # A unit may begin with a letter that "nan" and "1e5" have too: then only digits belong to the number.
    letters = b"" if line[token.end : token.end + 1] in _LETTERS and token.end < len(line) else _LETTERS
    number = rb"[-+\d." + (b"," if token.commas else b"") + letters + rb"]++"
    return group(number) + rb" *+/ *+" + group(number) if token.kind == "pair" else group(number)
