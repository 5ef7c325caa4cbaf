"""Exact cost of every call site of an observed operation; intervals of evaluations and checkpoints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import numpy as np

from hotloop.findings import Place
from hotloop.measure.attribution import Bytes
from hotloop.measure.evaluation import Regions
from hotloop.measure.loop import Loop
from hotloop.measure.passes import Events
from hotloop.measure.places import Frame, Places
from hotloop.measure.spans import Bools, Ints, Spans, Table
from hotloop.measure.stepping import Stepping
from hotloop.measure.steps import Interval, SiteCost
from hotloop.phases import COLUMN
from hotloop.record import rows as row
from hotloop.source.loops import under_remainder

#: View name -> kind of row and the names of its operations (``obj``).
VIEWS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "sync": (row.SYNC, row.SYNC_OPS),
    "transfer": (row.TRANSFER, ("", "host-to-device", "device-to-host")),
    "collective": (row.COLLECTIVE, row.COLLECTIVE_OPS),
    "logging": (row.LOG, row.LOG_OPS),
    "checkpoint": (row.SAVE, ("", "write", "state_dict", "load")),
    "socket": (row.SOCKET, ("", "select", "recv", "send")),
}

#: Kinds of call that make up training, as ``Loop.sites`` has them.
_TRAINING: Final = ("forward", "backward", "update", "fetch")

TRANSFER_FLAGS: Final = {
    "pinned": row.TRANSFER_PINNED,
    "non_blocking": row.TRANSFER_NON_BLOCKING,
    "converts": row.TRANSFER_CONVERTS,
    "float": row.TRANSFER_FLOAT,
}


def site_costs(
    spans: Spans, events: Events, phase: Bytes, stepping: Stepping, places: Places
) -> dict[str, tuple[SiteCost, ...]]:
    """Sites by view, each sorted by seconds; views without a call are left out."""
    counted = events.used.copy()
    if len(stepping):
        counted &= (spans.start >= stepping.span[0]) & (spans.start < stepping.span[1])
    views = {}
    for name, (kind, operations) in VIEWS.items():
        index = np.flatnonzero(counted & (spans.kind == kind))
        if len(index):
            costs = _costs(spans, phase, index, operations, places)
            views[name] = tuple(sorted(costs, key=lambda cost: -cost.seconds))
    return views


def _costs(
    spans: Spans, phase: Bytes, index: Ints, operations: tuple[str, ...], places: Places
) -> list[SiteCost]:
    key = (spans.site[index].astype(np.int64) << 16) | spans.obj[index]
    keys, group = np.unique(key, return_inverse=True)
    count = np.bincount(group)
    kind = int(spans.kind[index[0]])
    length = spans.duration[index] if kind == row.SAVE else spans.exclusive[index]
    seconds = np.bincount(group, weights=length) / 1e9
    has_bytes = kind in (row.TRANSFER, row.COLLECTIVE)
    num_bytes = np.bincount(group, weights=spans.value[index]) if has_bytes else np.zeros(len(keys))
    aside = np.isin(phase[index], (COLUMN["evaluation"], COLUMN["checkpoint"]))
    in_step = np.bincount(group, weights=~aside) * 2 > count
    shares = {
        name: np.bincount(group, weights=(spans.flags[index] & bit) != 0) / count
        for name, bit in (TRANSFER_FLAGS.items() if kind == row.TRANSFER else ())
    }
    return [
        SiteCost(
            place=places.site(int(keys[i]) >> 16),
            operation=_operation(operations, int(keys[i]) & 0xFFFF),
            count=int(count[i]),
            seconds=float(seconds[i]),
            num_bytes=int(num_bytes[i]),
            flags={name: float(share[i]) for name, share in shares.items()},
            in_step=bool(in_step[i]),
        )
        for i in range(len(keys))
    ]


def _operation(operations: tuple[str, ...], number: int) -> str:
    return (operations[number] if number < len(operations) else "") or "other"


def intervals(
    spans: Spans,
    events: Events,
    found: tuple[Ints, Ints, Ints],
    stepping: Stepping,
    loop: Loop,
    places: Places,
    samples: Table,
) -> tuple[Interval, ...]:
    """Evaluations or checkpoints (start, end, first row), each with the line it was started from."""
    worked = np.flatnonzero(events.step)
    done = np.append(-1, stepping.of(spans.start[worked]))  # the step of the last update before
    after = done[np.searchsorted(spans.start[worked], found[0])] + 1
    started = _started(spans, found, loop, places, samples)
    return tuple(
        Interval(
            start_s=int(start) / 1e9,
            end_s=int(end) / 1e9,
            after_step=int(after[i]),
            place=started.get(int(spans.site[first])),
        )
        for i, (start, end, first) in enumerate(zip(*found, strict=True))
    )


def _started(
    spans: Spans, found: tuple[Ints, Ints, Ints], loop: Loop, places: Places, samples: Table
) -> dict[int, Place | None]:
    """First row's site -> the line asked every so many steps, else the first call that leads to no training.

    A site has the stack of its first call only; where samples fell into an interval, theirs is taken.
    """
    start, end, first = found
    at = np.searchsorted(start, samples.start, side="right") - 1
    inside = (
        (at >= 0) & (samples.start < end[np.maximum(at, 0)]) if len(start) else np.zeros(len(at), np.bool_)
    )
    weight: Counter[Place] = Counter()  # samples outside less those inside
    for number, counted in ((1, ~inside), (-1, inside)):
        for stack, count in zip(*np.unique(samples.value[counted], return_counts=True), strict=True):
            known = places.stacks.get(int(stack))
            for place in {frame.place() for frame in known.frames} if known else ():
                weight[place] += number * int(count)
    ways = {
        frame.place() for name in _TRAINING for stack in loop.sites.get(name, ()) for frame in stack.frames
    }
    ways |= {place for place, more in weight.items() if more > 0}
    result: dict[int, Place | None] = {}
    for site in np.unique(spans.site[first]).tolist():
        own = inside & (spans.site[first[np.maximum(at, 0)]] == site) if len(first) else inside
        numbers, counts = np.unique(samples.value[own], return_counts=True)
        seen = [places.stacks.get(int(one)) for one in numbers[np.argsort(-counts)]]
        stacks = [one.frames for one in (places.sites.get(site), *seen) if one is not None]
        aside = [[frame for frame in frames if frame.place() not in ways] for frames in stacks]
        frames = next((frames for frames in aside if frames), [])
        asked = (frame for frame in frames if _every_nth(places, frame))
        chosen = next(asked, next(iter(frames), None))
        result[site] = chosen.place() if chosen else places.site(site)
    return result


def _every_nth(places: Places, frame: Frame) -> bool:
    code = places.code(frame.file)
    return code is not None and under_remainder(code, frame.line)


def with_graphs(evaluations: tuple[Interval, ...], spans: Spans, events: Events) -> tuple[Interval, ...]:
    """The evaluations, each with whether its forwards of trained modules built gradients."""
    forward = (spans.kind == row.FORWARD) & events.used
    built = (spans.flags & row.FORWARD_GRAD) != 0
    trained = np.zeros(row.U16_MAX + 1, np.bool_)
    trained[spans.obj[forward & built & ((spans.flags & row.FORWARD_TRAINING) != 0)]] = True
    index = np.flatnonzero(forward & trained[spans.obj])
    building = np.append(0, np.cumsum(built[index]))
    result = []
    for one in evaluations:
        first, last = np.searchsorted(spans.start[index] / 1e9, [one.start_s, one.end_s])
        graphs = building[last] - building[first]
        result.append(replace(one, builds_graphs=bool(2 * graphs > last - first)))
    return tuple(result)


def recurring_end(
    spans: Spans,
    regions: Regions,
    saves: tuple[Ints, Ints, Ints],
    stepping: Stepping,
    is_training: Bools,
    before: tuple[bool, bool],
) -> int:
    """Where the span ends when the evaluation or checkpoint after the last step is one of a series.

    Without this a run of two epochs would show one evaluation for two epochs of steps. ``before``: whether
    earlier pieces of a long recording had evaluations and checkpoints.
    """
    begin, end = stepping.span
    later = np.flatnonzero(is_training & (spans.start > end))
    limit = int(spans.start[later[0]]) if len(later) else np.iinfo(np.int64).max
    result = end
    for starts, ends, seen in (
        (regions.start, regions.end, before[0]),
        (saves[0], saves[1], before[1]),
    ):
        if seen or ((starts >= begin) & (ends <= end)).any():
            after = (starts >= end) & (ends <= limit)
            result = max(result, int(ends[after][0])) if after.any() else result
    return result
