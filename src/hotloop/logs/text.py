"""Text logs of any shape: learn the shapes of their lines, then read every line that has one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.logs import bars
from hotloop.logs.pauses import Pauses, Piece
from hotloop.logs.reading import Chunk, Damage, chunks
from hotloop.logs.streams import Stream
from hotloop.logs.templates import Floats, Ints, Rows, Template, Templates
from hotloop.logs.tokens import NUMBERED_NAMES, read_line

#: Lines looked at with care per chunk; the shapes of a log show within its first thousand lines.
_FIRST_LINES: Final = 2000
_MORE_LINES: Final = 150
_LONGEST_LINE: Final = 4000
_MAX_STREAMS: Final = 256
_DIGITS: Final = re.compile(
    rb"(?=[-+\d])"
    + rb"".join(
        rb"(?<!" + name + mark + rb")" for name in NUMBERED_NAMES for mark in (b" ", b"_", b"-", b"#")
    )
    + rb"(?<!\d)[-+]?\d[\d.,:]*(?:[eE][-+]?\d+)?",
    re.IGNORECASE,
)
_LOSS_LINES: Final = 5
_INFINITE: Final = re.compile(rb"inf(?:inity)?\b")
_HEAD_BYTES: Final = 1 << 18
_SETTINGS: Final = {
    "num_workers": re.compile(
        rb"\b(?:[\w.]*num_workers|workers_per_gpu|dataloader_workers|total_workers)['\"]?\s*[:=]\s*(\d+)\b",
        re.I,
    ),
    "batch_size": re.compile(
        rb"\b(?:(?:per_device_)?(?:train_)?batch_size|samples_per_gpu|batch_size_per_gpu)['\"]?\s*[:=]\s*(\d+)\b",
        re.I,
    ),
}


@dataclass(kw_only=True)
class Read:
    """What was read from one file, of whatever format."""

    streams: list[Stream]
    damage: Damage
    examples: list[bytes] = field(default_factory=list)
    pauses: Pauses = field(default_factory=Pauses)
    non_finite: list[tuple[int, float | None]] = field(default_factory=list)  # line, step
    num_non_finite: int = 0
    num_losses: int = 0
    settings: dict[str, int] = field(
        default_factory=dict
    )  # num_workers, batch_size, where a config is printed


class TextReader:
    """Streams of a text log, chunk by chunk."""

    def __init__(self, pattern: re.Pattern[bytes] | None = None) -> None:
        self.read = Read(streams=[], damage=Damage())
        self._pattern = pattern
        self._templates = Templates()
        self._streams: dict[tuple[object, ...], Stream] = {}
        self._seen: set[bytes] = set()
        self._strides: dict[object, int] = {}
        self._started = False
        self._all = False

    def run(self, path: Path, progress: Callable[[int], None] | None = None) -> Read:
        """Read the whole file."""
        for chunk in chunks(path, self.read.damage, progress):
            self._chunk(chunk)
        self.read.streams = [stream for stream in self._streams.values() if stream.num_rows]
        self.read.examples = [known.example for known in self._templates.known if known.hits][:40]
        return self.read

    def _chunk(self, chunk: Chunk) -> None:
        lines = _Lines(chunk)
        if not self._started:
            self._started = True
            self.read.settings = printed_settings(chunk.body[:_HEAD_BYTES])
        taken = []
        if self._pattern is not None:
            taken += list(self._by_pattern(chunk.body))
        else:
            self._all = _not_finite(chunk.body)
            if bars.has_bars(chunk.body):
                stride = 1 if self._all else self._strides.get("bars", 1)
                taken += [(bar, bar.rows) for bar in bars.take(chunk.body, stride)]
            for _, rows in taken:
                lines.claim(rows)
            taken += self._by_templates(chunk.body, self._templates.known, lines)
            for _ in range(2):
                fresh = self._learn(lines)
                if not fresh:
                    break
                taken += self._by_templates(chunk.body, fresh, lines)
        pieces = [self._add(source, rows, lines) for source, rows in taken if len(rows.starts)]
        self.read.pauses.watch(pieces, chunk.body)

    def _by_templates(
        self, body: bytes, templates: list[Template], lines: _Lines
    ) -> list[tuple[Template | bars.Bar, Rows]]:
        taken: list[tuple[Template | bars.Bar, Rows]] = []
        for template in templates:
            rows = template.take(body, 1 if self._all else self._strides.get(template, 1))
            if rows is None:
                continue
            free = lines.claim(rows)
            taken.append((template, rows if free.all() else rows.only(free)))
        return taken

    def _by_pattern(self, body: bytes) -> Iterator[tuple[Template | bars.Bar, Rows]]:
        from hotloop.logs.pattern import rows_of

        assert self._pattern is not None
        rows = rows_of(self._pattern, body)
        if rows is not None:
            yield bars.Bar(name="pattern", mode="train", unit="", rows=rows), rows

    def _learn(self, lines: _Lines) -> list[Template]:
        fresh = []
        for line in lines.unclaimed(_MORE_LINES if self._seen else _FIRST_LINES):
            skeleton = _DIGITS.sub(b"0", line)
            if skeleton in self._seen:
                continue
            if len(self._seen) < 20_000:
                self._seen.add(skeleton)
            new = self._templates.learn(read_line(line))
            if new is not None:
                fresh.append(new)
        return [new for new in fresh if new in self._templates.known]

    def _add(self, source: Template | bars.Bar, rows: Rows, lines: _Lines) -> Piece:
        columns = {**rows.columns, "line": lines.numbers(rows.starts)}
        note_losses(self.read, columns)
        piece = Piece(mode=source.mode, starts=rows.starts, columns=dict(columns))
        ranks = columns.pop("rank", np.zeros(0))
        for rank in np.unique(ranks) if len(ranks) else [None]:
            own = columns if rank is None else {k: v[ranks == rank] for k, v in columns.items()}
            stream = self._stream(source, None if rank is None else int(rank), tuple(rows.columns))
            if stream is not None:
                stream.add(own, rows.stride)
                self._strides[source if isinstance(source, Template) else "bars"] = stream.stride
        return piece

    def _stream(self, source: Template | bars.Bar, rank: int | None, roles: tuple[str, ...]) -> Stream | None:
        bar = isinstance(source, bars.Bar)
        name = source.name if isinstance(source, bars.Bar) else ""
        key = (name, source.mode, rank, bar or frozenset(roles))
        if key not in self._streams:
            if len(self._streams) >= _MAX_STREAMS:
                return None
            unit = source.unit if isinstance(source, bars.Bar) else "it"
            self._streams[key] = Stream(
                name=name, mode=source.mode, rank=rank, unit=unit, bar=bar and bool(unit)
            )
        return self._streams[key]


def note_losses(read: Read, columns: dict[str, Floats]) -> None:
    """Count the losses of these rows and remember the first that are not finite."""
    losses = columns.get("loss")
    if losses is None:
        return
    there = columns.pop("has_loss", np.ones(len(losses))) > 0
    read.num_losses += int(there.sum())
    bad = np.flatnonzero(there & ~np.isfinite(losses))
    read.num_non_finite += len(bad)
    for at in bad[: max(0, _LOSS_LINES - len(read.non_finite))]:
        counter = columns.get("step", columns.get("epoch"))
        read.non_finite.append(
            (int(columns["line"][at]), float(counter[at]) if counter is not None else None)
        )


def _not_finite(body: bytes) -> bool:
    """Whether something in a chunk may be NaN or infinite: then every line of it is read."""
    return b"nan" in body or b"NaN" in body or (b"inf" in body and _INFINITE.search(body) is not None)


def printed_settings(text: bytes) -> dict[str, int]:
    """Settings of a configuration printed at the top, where all mentions agree."""
    found = {name: {int(value) for value in rule.findall(text)} for name, rule in _SETTINGS.items()}
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


class _Lines:
    """The lines of a chunk: where they start, which are taken, their numbers in the file."""

    def __init__(self, chunk: Chunk) -> None:
        self._body = chunk.body
        body = np.frombuffer(chunk.body, dtype=np.uint8)
        self._starts = np.flatnonzero(body == 10).astype(np.int64)
        if chunk.raw is chunk.body:
            self._numbered = self._starts
        else:
            self._numbered = np.flatnonzero(np.frombuffer(chunk.raw, dtype=np.uint8) == 10).astype(np.int64)
        self._first = chunk.first_line
        self._taken = np.zeros(len(self._starts), dtype=bool)

    def claim(self, rows: Rows) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """[n] whether each line was still free; afterwards none is, nor are those skipped behind it."""
        at = np.searchsorted(self._starts, rows.starts)
        free = ~self._taken[at]
        self._taken[at] = True
        if rows.ends is not None:
            edges = np.zeros(len(self._starts) + 1, dtype=np.int64)
            np.add.at(edges, at, 1)
            np.add.at(edges, np.searchsorted(self._starts, rows.ends), -1)
            self._taken |= np.cumsum(edges[:-1]) > 0
        return free

    def numbers(self, starts: Ints) -> Floats:
        """[n] line numbers in the file, counted from 1."""
        return np.asarray(self._first - 1 + np.searchsorted(self._numbered, starts, side="right"), float)

    def unclaimed(self, limit: int) -> Iterator[bytes]:
        """Up to ``limit`` lines that nobody took: the first half in order, the rest spread over the chunk."""
        free = np.flatnonzero(~self._taken)
        if len(free) > limit:
            half = limit // 2
            spread = np.linspace(half, len(free) - 1, limit - half).astype(np.int64)
            free = np.concatenate([free[:half], free[spread]])
        for i in free:
            start = int(self._starts[i]) + 1
            end = int(self._starts[i + 1]) if i + 1 < len(self._starts) else len(self._body)
            if 0 < end - start <= _LONGEST_LINE:
                yield self._body[start:end]
