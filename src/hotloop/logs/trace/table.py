"""A trace as columns: what is kept of each event is some forty bytes."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.logs.reading import Reading, Row, opened, read_rows

Ints = npt.NDArray[np.signedinteger[Any]]

#: What becomes of an event, by its category (names of torch 1.10 to 2.13) and name.
DROPPED, DEVICE, RUNTIME, HOST, PYTHON = range(5)
_KINDS: Final = {
    "kernel": DEVICE,
    "gpu_memcpy": DEVICE,
    "gpu_memset": DEVICE,
    "cuda_runtime": RUNTIME,
    "cuda_driver": RUNTIME,
    "xpu_runtime": RUNTIME,
    "xpu_driver": RUNTIME,
    "privateuse1_runtime": RUNTIME,
    "privateuse1_driver": RUNTIME,
    "cpu_op": HOST,
    "user_annotation": HOST,
    "python_function": PYTHON,
}
#: Runtime calls that neither launch nor wait: queries, attributes, event records. Most of all calls.
_IDLE_CALL: Final = re.compile(
    r"Query|Attribute|IsCapturing|GetP|GetC|GetDevice|Occupancy|EventRecord|INVALID"
)
_NOTHING: Final = np.zeros(0, dtype=np.int64)
#: Times are kept inside what 64 bits of nanoseconds can add up.
_MAX_DIGITS: Final = 19
_MAX_NS: Final = 2**61
#: A function of the script's own, as the Python tracer names it.
_FUNCTION: Final = re.compile(r"(?P<file>[^<>]*\.py)\((?P<line>\d{1,9})\): (?P<function>.+)")
#: Functions of torch, as the Python tracer names them (with_stack=True), and the phase that they tell.
TELLING: Final = (
    (r"^torch/serialization\.py\(\d+\): save$", "checkpoint"),
    (r"^torch/utils/tensorboard/writer\.py", "logging"),
)
_LIBRARY: Final = re.compile(r"(^|/)(site-packages|dist-packages|torch|lib/python3[.\d]*)/")


@dataclass(frozen=True, kw_only=True)
class Label:
    """Category and name of events."""

    category: str
    name: str
    kind: int  # DROPPED, DEVICE, ...


@dataclass(frozen=True, kw_only=True)
class Events:
    """Events of one kind, sorted by thread, then start, the enclosing one first. Times in ns."""

    label: Ints
    thread: Ints
    start: Ints
    end: Ints
    correlation: Ints
    num_bytes: Ints  # -1: not said

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: npt.NDArray[Any]) -> Events:
        """Only the events of a mask or of an array of positions."""
        return Events(**{name: column[mask] for name, column in vars(self).items()})


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One file. ``threads`` are (process, thread) of the host or (device, stream)."""

    reading: Reading
    labels: tuple[Label, ...]
    threads: tuple[tuple[str, str], ...]
    device: Events
    calls: Events  # of the host: operators, annotations, calls of the device's runtime
    python: Events  # functions of the script only

    @property
    def rank(self) -> int | None:
        """The rank of the process, where the file says it."""
        info = self.reading.header.get("distributedInfo")
        rank = info.get("rank") if isinstance(info, dict) else None
        return rank if isinstance(rank, int) else None

    def name(self, label: int) -> str:
        """The name of a label."""
        return self.labels[label].name


def read_trace(path: Path) -> Trace:
    """Read a whole file; one that breaks off gives what is whole."""
    reading = Reading(header={})
    columns = _Columns()
    with opened(path) as stream:
        for rows in read_rows(stream, reading):
            if rows:
                columns.add(rows)
    return Trace(
        reading=reading,
        labels=tuple(columns.labels),
        threads=tuple(columns.threads),
        device=columns.events(DEVICE),
        calls=columns.events(HOST, RUNTIME),
        python=columns.events(PYTHON),
    )


def place_of(name: str) -> tuple[str, int, str] | None:
    """File, line and function of a Python event's name, None for anything else."""
    found = _FUNCTION.fullmatch(name)
    return (found["file"], int(found["line"]), found["function"]) if found else None


def _kind(category: str, name: str) -> int:
    kind = _KINDS.get(category, DROPPED)
    if kind == RUNTIME and _IDLE_CALL.search(name):
        return DROPPED
    if kind == PYTHON and not _is_own(name):
        return HOST if any(re.match(pattern, name) for pattern, _ in TELLING) else DROPPED
    return kind


def _is_own(name: str) -> bool:
    """Whether a Python event is a function of the script, neither torch's nor the standard library's.

    torch cuts off the folders of sys.path: ``threading.py(982): run``, ``torch/nn/modules/module.py(17): x``.
    """
    place = place_of(name)
    if place is None or _LIBRARY.search(place[0]):
        return False
    return place[0].split("/")[0].removesuffix(".py") not in sys.stdlib_module_names


class _Columns:
    """Takes rows in and turns them to columns by kind, block by block."""

    def __init__(self) -> None:
        self.labels: list[Label] = []
        self.threads: list[tuple[str, str]] = []
        self._kinds: list[int] = []
        self._label_id = cache(self._new_label)
        self._thread_id = cache(self._new_thread)
        self._known_labels: dict[Label, int] = {}
        self._blocks: dict[int, list[Events]] = {}

    def add(self, rows: list[Row]) -> None:
        """Take in a block of rows."""
        labels, threads, starts, durations, correlations, sizes = zip(*rows, strict=True)
        label = np.array(list(map(self._label_id, labels)), dtype=np.int32)
        thread = np.array(list(map(self._thread_id, threads)), dtype=np.int32)
        start = nanoseconds(starts)
        kinds = np.array(self._kinds, dtype=np.int8)[label]
        correlation = np.full(len(rows), -1, dtype=np.int64)
        num_bytes = np.full(len(rows), -1, dtype=np.int64)
        (linked,) = np.nonzero((kinds == DEVICE) | (kinds == RUNTIME))
        (moved,) = np.nonzero(kinds == DEVICE)
        correlation[linked] = _integers(correlations, linked)
        num_bytes[moved] = _integers(sizes, moved)
        end = start + np.maximum(nanoseconds(durations), 0)
        block = Events(
            label=label, thread=thread, start=start, end=end, correlation=correlation, num_bytes=num_bytes
        )
        for kind in (DEVICE, RUNTIME, HOST, PYTHON):
            self._blocks.setdefault(kind, []).append(block.where(kinds == kind))

    def events(self, *kinds: int) -> Events:
        """All events of some kinds, sorted; their blocks are let go."""
        blocks = [block for kind in kinds for block in self._blocks.pop(kind, [])]
        columns = {
            field.name: np.concatenate([getattr(block, field.name) for block in blocks] or [_NOTHING])
            for field in fields(Events)
        }
        del blocks
        order = np.lexsort((-columns["end"], columns["start"], columns["thread"]))
        for name in columns:
            columns[name] = columns[name][order]
        return Events(**columns)

    def _new_label(self, key: bytes) -> int:
        category, name = _pair(key, "cat")
        label = Label(category=category, name=name, kind=_kind(category, name))
        if label not in self._known_labels:
            self._known_labels[label] = len(self.labels)
            self.labels.append(label)
            self._kinds.append(label.kind)
        return self._known_labels[label]

    def _new_thread(self, key: bytes) -> int:
        thread = _pair(key, "pid")
        if thread not in self.threads:
            self.threads.append(thread)
        return self.threads.index(thread)


def _pair(key: bytes, first: str) -> tuple[str, str]:
    """The two values of a key that stands as in the file: ``"kernel", "name": "gemm"``."""
    text = key.decode("utf-8", "replace")
    try:
        one, two = json.loads(f'{{"{first}": {text}}}', strict=False).values()
    except ValueError:  # an escape that JSON does not know
        one, _, two = text.partition(",")
        one, two = one.strip(' "'), two.partition(":")[2].strip(' "')
    return str(one), str(two)


def nanoseconds(numbers: tuple[bytes, ...]) -> Ints:
    """Microseconds as written, exact where they have three decimals or none."""
    text = b" ".join(numbers)
    if max(map(len, numbers)) < _MAX_DIGITS:
        if all(number[-4:-3] == b"." for number in numbers):
            return _parsed(text.replace(b".", b""))
        if b"." not in text:
            return _parsed(text) * 1000
    return np.array([_exact(number) for number in numbers], dtype=np.int64)


def _exact(number: bytes) -> int:
    whole, _, fraction = number.partition(b".")
    thousands = int(whole) * 1000 if len(whole) < _MAX_DIGITS else _MAX_NS
    return min(_MAX_NS, thousands + int(fraction[:3].ljust(3, b"0")))


def _parsed(text: bytes) -> Ints:
    return np.fromstring(text.decode(), dtype=np.int64, sep=" ")


def _integers(values: tuple[bytes, ...], chosen: npt.NDArray[Any]) -> Ints:
    found = (values[at] for at in chosen.tolist())
    return np.array([int(value) if 0 < len(value) < _MAX_DIGITS else -1 for value in found], dtype=np.int64)


# Stretches of time


@dataclass(frozen=True, kw_only=True)
class Spans:
    """Stretches of time that do not touch, in order. Times in ns."""

    start: Ints
    end: Ints

    @property
    def total_ns(self) -> int:
        """The time they cover."""
        return int((self.end - self.start).sum())

    def covered(self, times: Ints) -> Ints:
        """How much of the time before each of ``times`` they cover."""
        if not len(self.start):
            return np.zeros(len(times), dtype=np.int64)
        before = np.concatenate([[0], np.cumsum(self.end - self.start)])
        at = np.searchsorted(self.start, times, side="right")
        still_open = np.maximum(self.end[np.maximum(at - 1, 0)] - times, 0)
        return np.where(at > 0, before[at] - still_open, 0)

    def gaps(self, start: int, end: int) -> Spans:
        """What they leave free of a window that holds them."""
        starts, ends = np.append(start, self.end), np.append(self.start, end)
        free = ends > starts
        return Spans(start=starts[free], end=ends[free])


def union(events: Events) -> Spans:
    """The time in which any of the events ran."""
    order = np.argsort(events.start, kind="stable")
    start, reached = events.start[order], np.maximum.accumulate(events.end[order])
    if not len(start):
        return Spans(start=start, end=reached)
    first = np.append(True, start[1:] > reached[:-1])
    return Spans(start=start[first], end=reached[np.append(first[1:], True)])


def clipped(events: Events, start: int, end: int) -> Events:
    """The events of a window, cut to it."""
    inside = events.where((events.end > start) & (events.start < end))
    return replace(inside, start=np.maximum(inside.start, start), end=np.minimum(inside.end, end))
