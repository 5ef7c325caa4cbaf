"""Text logs of any shape: learn the shapes of their lines, then read every line that has one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.logs.bars import read_bar
from hotloop.logs.pauses import Pauses, Piece
from hotloop.logs.reading import Chunk, Damage, chunks
from hotloop.logs.shapes import DIGITS, Shape, rows_of, shape_of
from hotloop.logs.streams import Floats, Ints, Stream
from hotloop.logs.tokens import read_line

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
            for rank in np.unique(ranks) if len(ranks) else [None]:
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
    found: dict[bytes, list[int]] = {}
    for i, text in enumerate(words):
        if text in found:
            found[text].append(i)
        else:
            found[text] = [i]
    for text in [text for text in found if _NUMBERED.search(text)]:
        for i in found.pop(text):
            found.setdefault(text + b" ".join(_THEIR_NUMBER.findall(lines[i])), []).append(i)
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
