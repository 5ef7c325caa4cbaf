"""Every nanosecond of the process into one phase: exact for rows, by samples for the gaps between them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from hotloop.measure.evaluation import NO_REGIONS, Regions
from hotloop.measure.places import Places, Stack
from hotloop.measure.spans import HOLDS, Bools, Intervals, Ints, Lives, Spans, Table, holder
from hotloop.measure.stepping import Seen, Stepping
from hotloop.measure.steps import Floats
from hotloop.phases import COLUMN, PHASES
from hotloop.record import rows as row
from hotloop.record.recording import Process

Bytes = npt.NDArray[np.uint8]

#: Steps in which a compile counts as start-up: the first ones always trace.
WARM_UP_STEPS = 3

#: Two saves closer than this with nothing between them are one checkpoint (ns).
SAVE_REACH_NS = 1_000_000_000

#: ``obj`` of SAVE rows.
SAVE_WRITE, SAVE_STATE = 1, 2

#: A gap this long is split by its own samples, shorter ones by those of their kind (ns).
LONG_GAP_NS = 25_000_000

BASE = np.full(256, COLUMN["other"], np.uint8)
for _kind, _phase in {
    row.FETCH: "data_wait", row.ITER: "epoch_gap", row.SHUTDOWN: "epoch_gap", row.FORWARD: "forward",
    row.BACKWARD: "backward", row.OPTIMIZER: "optimizer", row.ZERO_GRAD: "optimizer", row.CLIP: "optimizer",
    row.SCALER: "optimizer", row.SYNC: "sync", row.TRANSFER: "transfer", row.COLLECTIVE: "collective",
    row.SAVE: "checkpoint", row.LOG: "logging", row.COMPILE: "forward",
}.items():  # fmt: skip
    BASE[_kind] = COLUMN[_phase]

#: The kind of "no row": before the first and after the last.
NO_ROW = 0
#: The key of time after the script had ended; no sample explains it.
AT_EXIT = 0xFFFF


class At(IntEnum):
    """What a step last did, or does next."""

    NOTHING = 0
    FETCHED = 1  # a batch for training
    FORWARD = 2  # that training uses
    BACKWARD = 3
    UPDATED = 4
    EVALUATED = 5
    TURN = 6  # an iterator for training begins, or has no more batches

    @classmethod
    def before(cls, key: int) -> At:
        """What was done before a gap, of its key."""
        return cls(key >> 13)

    @classmethod
    def after(cls, key: int) -> At:
        """What is done after a gap."""
        return cls((key >> 10) & 7)


def happened(seen: Seen, trained: Bools, evaluates: Bools) -> Bytes:
    """[rows] what each row does for the step (``At``)."""
    spans, events, lives = seen.spans, seen.events, seen.lives
    kind = spans.kind
    ended = (kind == row.FETCH) & ((spans.flags & row.FETCH_END) != 0)
    found = np.zeros(len(spans), np.uint8)
    feeds = events.used & (lives.of_row >= 0)
    found[feeds & lives.training_row] = At.FETCHED
    found[feeds & lives.training_row & (ended | (kind == row.ITER))] = At.TURN
    found[trained] = At.FORWARD
    found[events.work & (kind == row.BACKWARD)] = At.BACKWARD
    found[events.step & (kind != row.BACKWARD)] = At.UPDATED
    found[evaluates | (feeds & ~lives.training_row)] = At.EVALUATED
    return found


@dataclass(frozen=True, kw_only=True)
class Gaps(Intervals):
    """Pieces of time without a row. ``key`` holds what the step did before and does after (``At``, three bits
    each), and the kinds of row before and after (five each).
    """

    key: npt.NDArray[np.uint16]
    phase: Bytes  # "other" where samples decide

    @property
    def open(self) -> Bools:
        """[n] gaps that samples may explain."""
        return np.asarray(self.phase == COLUMN["other"])


def span_phases(seen: Seen, regions: Regions, saves: Regions) -> Bytes:
    """[rows] the phase of each row's exclusive time."""
    spans, lives, stepping = seen.spans, seen.lives, seen.stepping
    phase = BASE[spans.kind]
    column = COLUMN
    gathers = (spans.kind == row.SAVE) & (spans.obj == SAVE_STATE) & ~saves.holds(spans.start)
    phase[gathers] = column["other"]
    trains = lives.training_row
    feeds = lives.of_row >= 0
    phase[feeds & ~trains] = column["evaluation"]
    ended = (spans.kind == row.FETCH) & ((spans.flags & row.FETCH_END) != 0)
    phase[feeds & trains & ended] = column["epoch_gap"]
    compiles = np.flatnonzero(spans.kind == row.COMPILE)
    phase[compiles[stepping.of(spans.start[compiles]) < WARM_UP_STEPS]] = column["startup"]
    _inherit(spans, phase)
    checkpoint = phase == column["checkpoint"]
    phase[regions.holds(spans.start) & ~checkpoint] = column["evaluation"]
    phase[(spans.start < stepping.ready) & ~regions.holds(spans.start)] = column["startup"]
    return phase


def _inherit(spans: Spans, phase: Bytes) -> None:
    """Rows inside a fetch, a save, an iterator's start are part of it; a forward in a backward recomputes."""
    kind = spans.kind
    takes = np.isin(kind, HOLDS)
    backward = kind == row.BACKWARD
    for index in spans.by_level()[1:]:
        parent = spans.parent[index]
        taken = index[takes[parent]]
        phase[taken] = phase[spans.parent[taken]]
        takes[taken] = True
        again = index[backward[parent] & (kind[index] == row.FORWARD)]
        phase[again] = COLUMN["backward"]


def saves_of(spans: Spans) -> Regions:
    """Checkpoints: neighbouring saves with no other row between are one.

    Without a write it is none: ``state_dict()`` also feeds averages and target networks.
    """
    tops = np.flatnonzero(spans.level == 0)
    saves = (spans.kind[tops] == row.SAVE) & (spans.obj[tops] != 3)
    at = np.flatnonzero(saves)
    if not len(at):
        return NO_REGIONS
    near = spans.start[tops[at[1:]]] - spans.end[tops[at[:-1]]] < SAVE_REACH_NS
    joined = (np.diff(at) == 1) & near
    first = at[np.append(True, ~joined)]
    last = at[np.append(~joined, True)]
    writes = np.append(0, np.cumsum((spans.kind[tops] == row.SAVE) & (spans.obj[tops] == SAVE_WRITE)))
    written = writes[last + 1] > writes[first]
    first, last = first[written], last[written]
    return Regions(start=spans.start[tops[first]], end=spans.end[tops[last]], first=tops[first])


def find_gaps(
    seen: Seen, done: Bytes, regions: Regions, saves: Regions, begin: int, wall: int, exit_ns: int | None
) -> Gaps:
    """The time between outermost rows, cut at evaluations, the ends of the training span and the exit."""
    spans, stepping = seen.spans, seen.stepping
    tops = np.flatnonzero(spans.level == 0)
    starts = np.append(begin, spans.end[tops])
    ends = np.append(spans.start[tops], wall)
    key = _place_keys(spans.kind[tops], done[tops])
    del tops
    kept = ends > starts
    starts = starts[kept]  # one after the other: in a long recording each of them is large
    ends = ends[kept]
    key = key[kept]
    left = wall if exit_ns is None else exit_ns
    cuts = np.unique(
        np.concatenate([regions.start, regions.end, np.array([*stepping.span, stepping.ready, left])])
    )
    at = holder(starts, ends, cuts)
    inside = (at >= 0) & (cuts > starts[at]) if len(starts) else at >= 0
    cuts, at = cuts[inside], at[inside]
    starts = np.insert(starts, at + 1, cuts)
    ends = np.insert(ends, at, cuts)
    key = np.insert(key, at + 1, key[at])
    key[starts >= left] = AT_EXIT
    phase = np.full(len(starts), COLUMN["other"], np.uint8)
    phase[saves.holds(starts)] = COLUMN["checkpoint"]
    evaluates = regions.holds(starts) & (phase != COLUMN["checkpoint"])
    phase[evaluates] = COLUMN["evaluation"]
    phase[(starts < min(stepping.ready, left)) & ~evaluates] = COLUMN["startup"]
    return Gaps(start=starts, end=ends, key=key, phase=phase)


def _place_keys(kind: Bytes, done: Bytes) -> npt.NDArray[np.uint16]:
    """[rows + 1] the keys of the gaps around outermost rows, from their kinds and what they did."""
    num = len(kind)
    kinds = np.full(num + 2, NO_ROW, np.uint16)
    kinds[1:-1] = kind
    marked = done > 0
    own = np.append(At.NOTHING, done).astype(np.uint16)
    before = own[np.maximum.accumulate(np.append(0, np.where(marked, np.arange(1, num + 1), 0)))]
    following = np.append(np.where(marked, np.arange(1, num + 1), 0), 0)
    following[following == 0] = num + 1
    after = np.append(own, At.NOTHING)[np.minimum.accumulate(following[::-1])[::-1]]
    return np.asarray(before << 13 | after << 10 | kinds[:-1] << 5 | kinds[1:], np.uint16)


@dataclass(frozen=True, kw_only=True)
class Split:
    """How the open gaps divide: [gaps] or by key, each a share per phase that sums to one."""

    by_key: Mapping[int, Floats]
    by_gap: Mapping[int, Floats]


def tabulate(seen: Seen, phase: Bytes, gaps: Gaps, split: Split) -> tuple[Floats, Floats, Floats]:
    """(steps x phases in seconds, totals of the span, totals of the process)."""
    spans, stepping = seen.spans, seen.stepping
    num, width = len(stepping), len(PHASES)
    table = np.zeros((num + 1, width))  # the last row takes what lies outside the steps
    inside = _add(table, stepping, spans.start, phase, spans.exclusive)
    length = gaps.end - gaps.start
    lookup = np.tile(np.eye(width)[COLUMN["other"]], (1 << 16, 1))
    for key, shares in split.by_key.items():
        lookup[key] = shares
    pooled = gaps.open
    inside += _add(table, stepping, gaps.start[~pooled], gaps.phase[~pooled], length[~pooled])
    pooled[list(split.by_gap)] = False
    start, length, keys = gaps.start[pooled], length[pooled], gaps.key[pooled]
    for column in np.flatnonzero(lookup[np.unique(keys)].any(axis=0)):
        own = np.full(len(keys), column, np.uint8)
        inside += _add(table, stepping, start, own, length * lookup[:, column][keys])
    for gap, shares in split.by_gap.items():
        spent = shares * (gaps.end[gap] - gaps.start[gap])
        table[stepping.of(gaps.start[gap : gap + 1])[0]] += spent
        if stepping.span[0] <= gaps.start[gap] < stepping.span[1]:
            inside += spent
    table /= 1e9
    return table[:num], inside / 1e9, table.sum(axis=0)


def _add(
    table: Floats, stepping: Stepping, start: Ints, phase: Bytes, length: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Adds intervals to the steps they begin in; returns what of them lies in the span."""
    num, width = table.shape
    step = stepping.of(start) % num  # those outside go to the last row of the table
    table += np.bincount(step * width + phase, weights=length, minlength=table.size).reshape(num, width)
    in_span = (start >= stepping.span[0]) & (start < stepping.span[1])
    return np.bincount(phase[in_span], weights=length[in_span], minlength=width)


def uncovered_ns(samples: Table, gaps: Gaps, exit_ns: int | None) -> int:
    """ns of open gaps that no sample's weight reaches; after ``exit_ns`` the interpreter is winding down."""
    last = np.iinfo(np.int64).max if exit_ns is None else exit_ns
    end = samples.start
    start = np.maximum(end - samples.duration, np.append(0, np.maximum.accumulate(end)[:-1]))
    start = np.minimum(start, end)
    covered = np.append(0, np.cumsum(end - start))

    def until(times: Ints) -> Ints:
        at = np.searchsorted(end, times, side="right")
        into = np.zeros(len(times), np.int64)
        more = at < len(end)
        into[more] = np.maximum(times[more] - start[at[more]], 0)
        return np.asarray(covered[at] + into)

    starts, ends = np.minimum(gaps.start[gaps.open], last), np.minimum(gaps.end[gaps.open], last)
    return int((ends - starts - (until(ends) - until(starts))).sum())


# What came before the first step


IMPORT = re.compile(r"^\s*(?:import\s+([\w.]+)|from\s+(\S+)\s+import\b)|\bimport_module\(")

#: The part that is no start-up by phase: the training span begins when it is asked for.
IN_TRAINING = "first batch"
#: The script's own work.
SETUP = "setup"

#: Imports are told by name from this share of all imports besides torch's own, and this many nanoseconds.
TOLD_RATIO = 0.2
TOLD_NS = 500_000_000


def startup_parts(
    process: Process, seen: Seen, samples: Table, places: Places, wall: int, whole_s: float
) -> dict[str, float]:
    """Seconds by part: "interpreter", "import torch", "import NAME" and "lazy imports of NAME" that take
    long, "other imports", "setup", "first batch", "compile".

    They add up to ``whole_s`` of the phase "startup"; the "first batch" (``IN_TRAINING``) is in the span.
    """
    spans, stepping = seen.spans, seen.stepping
    ready = min(stepping.ready, wall)
    began, ended = _torch_import(process, ready)
    imports = _other_imports(samples, places, ended, ready)
    total = sum(imports.values())
    told = {name: ns for name, ns in imports.items() if name and ns >= max(TOLD_NS, TOLD_RATIO * total)}
    parts = {
        "interpreter": began / 1e9,
        "import torch": (ended - began) / 1e9,
        **{name: ns / 1e9 for name, ns in told.items()},
        "other imports": (total - sum(told.values())) / 1e9,
    }
    if len(stepping):
        compiles = np.flatnonzero(spans.kind == row.COMPILE)
        step = stepping.of(spans.start[compiles])
        early = compiles[(step >= 0) & (step < WARM_UP_STEPS)]
        if len(early):
            parts["compile"] = float(spans.exclusive[early].sum()) / 1e9
    parts[SETUP] = max(0.0, whole_s - sum(parts.values()))
    return parts | ({IN_TRAINING: _first_batch(spans, seen.lives) / 1e9} if len(stepping) else {})


def _torch_import(process: Process, ready: int) -> tuple[int, int]:
    origin = process.origin_ns
    for note in process.notes.get("import", ()):
        start, end = note.get("start_ns"), note.get("end_ns")
        if note.get("module") == "torch" and isinstance(start, int) and isinstance(end, int):
            began = min(max(start - origin, 0), ready)
            return began, min(max(end - origin, began), ready)
    return 0, 0


def _other_imports(samples: Table, places: Places, begin: int, end: int) -> dict[str, int]:
    """Sampled time (ns) in which something was being imported, by what it was; "" where that is not known."""
    found: dict[str, int] = {}
    for i in np.flatnonzero(samples.began(begin, end)):
        stack = places.stacks.get(int(samples.value[i]))
        name = _imported(stack, places) if stack is not None and stack.frames else None
        if name is not None:
            spent = min(int(samples.duration[i]), int(samples.start[i]) - begin)
            found[name] = found.get(name, 0) + spent
    return found


def _imported(stack: Stack, places: Places) -> str | None:
    """What is being imported at a stack: the user's import, or a library's own on first use; else None."""
    frame = stack.frames[-1]
    written = IMPORT.search(places.text(frame.file, frame.line))
    if written:
        package = (written[1] or written[2] or "").lstrip(".").split(".")[0]
        return f"import {package}" if package not in ("", "torch") else ""
    for at, entry in enumerate(stack.library):
        if entry.startswith("importlib._bootstrap"):
            above = (re.split("[.:]", caller)[0] for caller in reversed(stack.library[:at]))
            owner = next((name for name in above if name != "importlib"), "")  # import_module asks for others
            return f"lazy imports of {owner}" if owner else ""
    return None


def _first_batch(spans: Spans, lives: Lives) -> int:
    """Starting the first training iterator and its first fetch (ns)."""
    training = np.flatnonzero(lives.trains)
    if not len(training):
        return 0
    first = np.flatnonzero((lives.of_row >= 0) & np.append(lives.trains, False)[lives.of_row])
    if not len(first):
        return 0
    mine = first[lives.of_row[first] == lives.of_row[first[0]]]
    starts = mine[spans.kind[mine] == row.ITER][:1]
    fetches = mine[spans.kind[mine] == row.FETCH][:1]
    return int(spans.duration[starts].sum() + spans.duration[fetches].sum())
