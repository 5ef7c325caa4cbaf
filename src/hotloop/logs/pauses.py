"""Pauses in a log: its level changes, or between two lines much more time passes than usual, and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np

from hotloop.logs.meanings import Floats, Ints
from hotloop.logs.tokens import CLOCK, moment
from hotloop.stats import robust_deviation

#: A change of level that is worth a person's attention.
LEAST_RATIO: Final = 0.10
#: Of fewer values no change is told.
LEAST_VALUES: Final = 6
_MAX_POINTS: Final = 1200
_NOISE_FLOOR: Final = 0.01
#: Values around one of which the median is taken.
_AROUND: Final = 7
_PENALTY: Final = 4.0


def segments(values: Floats) -> list[int]:
    """Where each level of a positive series starts, 0 first. Values that are not positive do not count."""
    good = np.flatnonzero(np.isfinite(values) & (values > 0))
    if len(good) < LEAST_VALUES:
        return [0]
    block = -(-len(good) // _MAX_POINTS)
    logs = np.log(values[good])
    if block > 1:
        whole = len(logs) // block * block
        logs = np.median(logs[:whole].reshape(-1, block), axis=1)
    if len(logs) >= 2 * _AROUND:  # an outlier, three deviations from the median around it, is no change
        around = running_median(logs, _AROUND)
        spread = 3 * max(_NOISE_FLOOR, robust_deviation(logs - around, around=0.0))
        logs = np.clip(logs, around - spread, around + spread)
    cuts = _merged(logs, _pelt(logs, _noise(logs), 3 if len(logs) < 40 else 5))
    return [0, *(int(good[min(cut * block, len(good) - 1)]) for cut in cuts[1:])]


def level(values: Floats) -> float:
    """The usual value: the median of what is finite and positive."""
    good = values[np.isfinite(values) & (values > 0)]
    return float(np.median(good)) if len(good) else float("nan")


def running_median(values: Floats, width: int) -> Floats:
    """[n] the median of the ``width`` values around each one."""
    if len(values) < width:
        return np.full(len(values), np.median(values)) if len(values) else values
    padded = np.pad(values, width // 2, mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, width), axis=1), float)


def _noise(logs: Floats) -> float:
    """Deviation of one value from its level as its mean over many feels it.

    From differences of neighbours, around their median: levels and trends cancel. In a smoothed or wandering
    series neighbours are alike and far ones are not; the ratio of the two is its autocorrelation, and means
    over it are less certain by (1 + r) / (1 - r) in variance.
    """
    near = _deviation(logs, 1)
    far = max([near, *(_deviation(logs, lag) for lag in (3, 10, 30) if len(logs) >= 15 * lag)])
    alike = min(0.95, 1.0 - (near / far) ** 2) if far > 0 else 0.0
    return max(_NOISE_FLOOR, far * float(np.sqrt((1 + alike) / (1 - alike))))


def _deviation(logs: Floats, lag: int) -> float:
    return robust_deviation(logs[lag:] - logs[:-lag]) / float(np.sqrt(2))


def _pelt(logs: Floats, noise: float, least: int) -> list[int]:
    """Starts of the segments of least squared error plus a penalty each."""
    n = len(logs)
    scaled = logs / noise
    sums = np.concatenate([[0.0], np.cumsum(scaled)])
    squares = np.concatenate([[0.0], np.cumsum(scaled**2)])
    penalty = _PENALTY * np.log(n)
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    before = np.zeros(n + 1, dtype=np.int64)
    candidates = np.array([0], dtype=np.int64)
    for end in range(least, n + 1):
        sizes = end - candidates
        cost = squares[end] - squares[candidates] - (sums[end] - sums[candidates]) ** 2 / sizes
        total = best[candidates] + cost + penalty
        pick = int(np.argmin(total))
        best[end], before[end] = total[pick], candidates[pick]
        candidates = candidates[total - penalty <= best[end]]
        if end - least + 1 >= least:
            candidates = np.append(candidates, end - least + 1)
    starts, end = [], n
    while end > 0:
        end = int(before[end])
        starts.append(end)
    return starts[::-1]


def _merged(logs: Floats, starts: list[int]) -> list[int]:
    """Without changes smaller than is worth saying, the smallest first."""
    starts = list(starts)
    while len(starts) > 1:
        ends = [*starts[1:], len(logs)]
        levels = [float(np.median(logs[a:b])) for a, b in zip(starts, ends, strict=True)]
        steps = [abs(np.expm1(abs(b - a))) for a, b in pairwise(levels)]
        smallest = int(np.argmin(steps))
        if steps[smallest] >= LEAST_RATIO:
            break
        del starts[smallest + 1]
    return starts


_FACTOR: Final = 4.0
_LEAST_S: Final = 2.0
_BETWEEN_BYTES: Final = 64 * 1024
_UNEXPLAINED: Final = "unexplained"
_STAMP: Final = re.compile(rb"(?m)^.{0,40}?(?<![\d:])(" + CLOCK + rb")")
_KINDS: Final = (
    (
        "evaluation",
        re.compile(rb"(?i)eval|valid|\bval\b|\btest(?:ing)?\b|\xe9\xaa\x8c\xe8\xaf\x81|\xe8\xaf\x84\xe4\xbc\xb0"),
    ),
    ("checkpoint", re.compile(rb"(?i)checkpoint|ckpt|saving|saved|\bsave\b")),
    ("epoch", re.compile(rb"(?i)epoch")),
)  # fmt: skip


@dataclass(kw_only=True)
class Pause:
    """All pauses of one kind: how many, seconds beyond the usual interval, where the longest is."""

    count: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Rows of one shape of line in one chunk; ``bar`` names the progress bar that they are updates of."""

    mode: str
    starts: Ints
    columns: dict[str, Floats]
    bar: str | None = None


@dataclass(kw_only=True)
class Pauses:
    """Collects pauses chunk by chunk. ``span_s`` is the time the clock covers."""

    kinds: dict[str, Pause] = field(default_factory=dict)
    usual_s: float = 0.0
    span_s: float = 0.0
    _last: float | None = None

    def watch(self, pieces: Sequence[Piece], body: bytes) -> None:
        """Look at the intervals between lines of training; lines of several ranks are not judged."""
        own, role = [piece for piece in pieces if piece.mode == "train" and "clock" in piece.columns], "clock"
        if not own:  # the longest bar's own time, which goes on while the loop evaluates
            bars = Counter[str]()
            for piece in pieces:
                if piece.bar is not None and piece.mode == "train":
                    bars[piece.bar] += len(piece.starts)
            longest = bars.most_common(1)[0][0] if bars else None
            own, role = [piece for piece in pieces if longest is not None and piece.bar == longest], "elapsed"
        if not own or any("rank" in piece.columns for piece in own):
            return
        starts = np.concatenate([piece.starts for piece in own])
        clock, lines = (np.concatenate([piece.columns[n] for piece in own]) for n in (role, "line"))
        order = np.argsort(starts, kind="stable")
        order = order[np.isfinite(clock[order])]
        starts, clock, lines = starts[order], clock[order], lines[order]
        if not len(starts):
            return
        if self._last is not None:
            starts, clock, lines = (
                np.insert(column, 0, first)
                for column, first in ((starts, 0), (clock, self._last), (lines, lines[0]))
            )
        self._judge(starts, clock, lines, body)
        self._last = float(clock[-1])

    def _judge(self, starts: Ints, clock: Floats, lines: Floats, body: bytes) -> None:
        passed = np.diff(clock)
        forward = passed[passed >= 0]
        self.span_s += float(forward[forward < 7 * 86400].sum())
        if len(forward) >= 3:
            usual = float(np.median(forward))
            self.usual_s = usual if not self.usual_s else 0.8 * self.usual_s + 0.2 * usual
        if not self.usual_s and len(forward) < 3:
            return
        usually = np.maximum(self.usual_s, running_median(passed, 11))  # a run that got slower does not pause
        threshold = np.maximum(_FACTOR * usually, usually + _LEAST_S)
        for i in np.flatnonzero((passed > threshold) & (passed < 7 * 86400))[:1000]:
            between = body[int(starts[i]) : int(starts[i + 1])][-_BETWEEN_BYTES:]
            for kind, seconds in self._apportioned(between, float(clock[i]), float(clock[i + 1])):
                self._count(kind, seconds, int(lines[i]))

    def _apportioned(self, between: bytes, begin: float, end: float) -> list[tuple[str, float]]:
        """The pause by what the lines in it speak of; each interval belongs to the line that opens it."""
        marks = [(begin, b"")]
        previous = between.find(b"\n", 1)
        for line in between[previous:].split(b"\n") if previous > 0 else ():
            match = _STAMP.match(line)
            if match:
                marks.append((moment(match[1]), line))
            else:
                marks[-1] = (marks[-1][0], marks[-1][1] + b" " + line[:200])
        marks = [(t, words) for t, words in marks if begin <= t <= end] + [(end, b"")]
        spans: dict[str, float] = {}
        for (start, words), (stop, following) in pairwise(marks):
            kind = _kind(words) or _kind(following) or _UNEXPLAINED
            spans[kind] = spans.get(kind, 0.0) + stop - start
        # The last interval ends with a line of training: the usual part of it is training.
        spans[kind] = max(0.0, spans[kind] - self.usual_s)
        total = sum(spans.values())
        return [(kind, seconds) for kind, seconds in spans.items() if seconds > 0.02 * total]

    def _count(self, kind: str, seconds: float, line: int) -> None:
        known = self.kinds.setdefault(kind, Pause(line=line))
        known.count += 1
        known.seconds += seconds
        if seconds > known.longest_s:
            known.longest_s, known.line = seconds, line


def _kind(words: bytes) -> str | None:
    return next((kind for kind, pattern in _KINDS if words and pattern.search(words)), None)
