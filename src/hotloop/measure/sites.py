"""Exact cost of every call site of an observed operation; intervals of evaluations and checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from hotloop.findings import Place
from hotloop.measure.attribution import Bytes
from hotloop.measure.evaluation import Regions
from hotloop.measure.loop import Loop
from hotloop.measure.places import Places, Stack
from hotloop.measure.spans import Bools, Ints, Spans, Table
from hotloop.measure.stepping import Seen, Stepping
from hotloop.measure.steps import Interval, SiteCost
from hotloop.phases import COLUMN
from hotloop.record import rows as row

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

#: A pause that comes after more than this many times the steps between the others is none of their series.
_SERIES: Final = 2

TRANSFER_FLAGS: Final = {
    "pinned": row.TRANSFER_PINNED,
    "non_blocking": row.TRANSFER_NON_BLOCKING,
    "converts": row.TRANSFER_CONVERTS,
    "float": row.TRANSFER_FLOAT,
}
FLAGS: Final = {row.TRANSFER: TRANSFER_FLAGS, row.FORWARD: {"grad": row.FORWARD_GRAD}}


def site_costs(seen: Seen, phase: Bytes, places: Places, loop: Loop) -> dict[str, tuple[SiteCost, ...]]:
    """Sites by view, each sorted by seconds; views without a call are left out."""
    spans, counted = seen.spans, seen.events.used.copy()
    if len(seen.stepping):
        counted &= spans.began(*seen.stepping.span)
    views = {}
    for name, (kind, operations) in VIEWS.items():
        index = np.flatnonzero(counted & (spans.kind == kind))
        if len(index):
            views[name] = _costs(spans, phase, index, operations, places.site)
    again = np.flatnonzero(counted & (phase == COLUMN["forward"]) & _again(seen))
    if len(again) and 2 * len(np.unique(seen.stepping.of(spans.start[again]))) > len(seen.stepping):
        ways = _ways(loop)
        views["again"] = _costs(
            spans, phase, again, (), lambda n: _aside(places.sites.get(n), ways) or places.site(n)
        )
    return views


def _again(seen: Seen) -> Bools:
    """[rows] forwards of trained modules in evaluation mode, with no backward before the next that trains."""
    spans, events = seen.spans, seen.events
    training = (spans.flags & row.FORWARD_TRAINING) != 0
    items = np.flatnonzero((spans.kind == row.BACKWARD) & events.used | events.built & training)
    backward = np.append(spans.kind[items] == row.BACKWARD, False)
    following = backward[np.searchsorted(spans.start[items], spans.start)]
    return np.asarray(events.forward & ~training & events.trained[spans.obj] & ~following)


def _costs(
    spans: Spans,
    phase: Bytes,
    index: Ints,
    operations: tuple[str, ...],
    place: Callable[[int], Place | None],
) -> tuple[SiteCost, ...]:
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
        for name, bit in FLAGS.get(kind, {}).items()
    }
    costs = (
        SiteCost(
            place=place(int(keys[i]) >> 16),
            operation=dict(enumerate(operations)).get(int(keys[i]) & 0xFFFF) or "other",
            count=int(count[i]),
            seconds=float(seconds[i]),
            num_bytes=int(num_bytes[i]),
            flags={name: float(share[i]) for name, share in shares.items()},
            in_step=bool(in_step[i]),
        )
        for i in range(len(keys))
    )
    return tuple(sorted(costs, key=lambda cost: -cost.seconds))


def intervals(seen: Seen, found: Regions, loop: Loop, places: Places, samples: Table) -> tuple[Interval, ...]:
    """Evaluations or checkpoints, each with the line it was started from. A site keeps only the way on which
    it was first reached: where no sample stands there, it is what most samples stand under.
    """
    spans, worked = seen.spans, np.flatnonzero(seen.events.step)
    done = np.append(-1, seen.stepping.of(spans.start[worked]))  # the step of the last update before
    after = done[np.searchsorted(spans.start[worked], found.start)] + 1
    ways = _ways(loop)

    def started(index: int) -> Place | None:
        seconds: Counter[Place | None] = Counter()
        first, last = np.searchsorted(samples.start, [found.start[index], found.end[index]])
        numbers, at = np.unique(samples.value[first:last], return_inverse=True)
        for number, taken in zip(numbers, np.bincount(at, samples.duration[first:last]), strict=True):
            seconds[_aside(places.stacks.get(int(number)), ways)] += int(taken)
        del seconds[None]
        site = _aside(places.sites.get(int(spans.site[found.first[index]])), ways)
        near = [place for place in seconds if place and site and place.in_function == site.in_function]
        return site if site in near else max(near or seconds, key=seconds.__getitem__, default=site)

    whole: list[Interval] = []
    pieces = zip((found.start / 1e9).tolist(), (found.end / 1e9).tolist(), strict=True)
    for i, (start, end) in enumerate(pieces):
        one = Interval(start_s=start, end_s=end, after_step=int(after[i]), place=started(i))
        before = whole[-1] if whole else one
        if whole and before.after_step == one.after_step and one.place in (None, before.place):
            whole[-1] = replace(before, end_s=end, paused_s=before.paused_s + start - before.end_s)
        else:
            whole.append(one)
    return tuple(whole)


def _ways(loop: Loop) -> set[Place]:
    return {
        frame.place() for name in _TRAINING for stack in loop.sites.get(name, ()) for frame in stack.frames
    }


def _aside(stack: Stack | None, ways: set[Place]) -> Place | None:
    """The outermost call of a stack that leads to no training, or calls a model that is trained there too;
    None where all lead to training.
    """
    before = None
    for frame in stack.frames if stack else ():
        if frame.func.rpartition(".")[2] == "forward":
            return before
        if (before := frame.place()) not in ways:
            return before
    return None


def with_graphs(evaluations: tuple[Interval, ...], seen: Seen) -> tuple[Interval, ...]:
    """The evaluations, each with whether its forwards of modules with parameters built graphs."""
    spans, events = seen.spans, seen.events
    index = np.flatnonzero(events.forward & ((spans.flags & row.FORWARD_PARAMS) != 0))
    building = np.append(0, np.cumsum(events.built[index]))
    ends = np.array([(one.start_s, one.end_s) for one in evaluations]).reshape(-1, 2)
    first, last = np.searchsorted(spans.start[index] / 1e9, ends).T
    builds = 2 * (building[last] - building[first]) > last - first
    pairs = zip(evaluations, builds.tolist(), strict=True)
    return tuple(replace(one, builds_graphs=graphs) for one, graphs in pairs)


def with_last_interval(stepping: Stepping, training: Ints, *series: Regions, later: bool) -> Stepping:
    """The last step extended over the evaluation or checkpoint after it, where that is one of a series: it
    comes about as many steps after the last one as others. Otherwise a run of two epochs would show one
    evaluation for two epochs of steps.

    ``training``: when its rows begin. In a ``later`` piece of a long recording it is taken to be one.
    """
    begin, last = stepping.span
    limit = min([np.iinfo(np.int64).max, *training[training > last][:1].tolist()])
    end = stepping.end.copy()
    for found in series:
        after = found.end[(found.start >= last) & (found.end <= limit)]
        inside = found.start[(found.start >= begin) & (found.end <= last)]
        if len(after) and (later or _goes_on(stepping.of(inside) + 1, len(stepping))):
            end[-1:] = np.maximum(end[-1:], after[0])
    return replace(stepping, end=end, span=(begin, max(last, int(end[-1]))) if len(end) else (begin, last))


def _goes_on(after_steps: Ints, num_steps: int) -> bool:
    """Whether pauses after these steps make one after the last step expected."""
    gaps = np.diff(after_steps, prepend=0)
    return len(gaps) > 0 and num_steps - int(after_steps[-1]) <= _SERIES * int(gaps.max())
