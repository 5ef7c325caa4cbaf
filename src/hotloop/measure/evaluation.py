"""Forwards that train nothing, decided by rows, and the evaluations that they make up.

A forward trains if a backward can use it before the next update. Without gradients none can: in every step
such a forward is part of it (a teacher, a target network), in some steps only it evaluates. So does what runs
after the last update on a batch of a loader. No source is read and no name decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from hotloop.measure.places import Places, Stack
from hotloop.measure.spans import Bools, Events, Intervals, Ints, Lives, Spans, Table, holder, is_many
from hotloop.measure.stepping import Seen
from hotloop.record import rows as row

#: A forward without gradients in more of the steps, or of one optimizer's, than this is part of the step.
PART_OF_STEP_RATIO = 0.5
#: With fewer steps a frequency says nothing.
LEAST_STEPS = 4
#: Of the forwards at one site, so many are alike.
_MOSTLY = 0.8
#: Evaluations do not grow over rows of these: a figure is reported as one.
_DRAWS = tuple(row.LOG_OPS.index(name) for name in ("image", "figure"))

Function = tuple[str, str, int]


@dataclass(frozen=True, kw_only=True)
class Untrained:
    """What the forwards that train nothing are for. Masks over the spans."""

    evaluates: Bools
    acts: Bools  # asks for what is trained on next: a rollout of a policy
    shows: Bools  # an image for a viewer


@dataclass(frozen=True, kw_only=True)
class Regions(Intervals):
    """Evaluations, or checkpoints. ``first`` is the span that opened each."""

    first: Ints

    def holds(self, times: Ints) -> Bools:
        """[n] whether a time lies in one."""
        return np.asarray(self.of(times) >= 0)


_NONE = np.zeros(0, np.int64)
NO_REGIONS = Regions(start=_NONE, end=_NONE, first=_NONE)


def eval_forwards(spans: Spans, events: Events, lives: Lives) -> Bools:
    """[rows] forwards that evaluate: by their flags, or because an evaluation batch feeds them."""
    forward = np.flatnonzero(events.forward)
    result = events.eval_flags.copy()
    before, after = _evaluation_batches(spans, events, lives, forward)
    trains = events.built[forward] & ((spans.flags[forward] & row.FORWARD_TRAINING) != 0)
    result[forward] |= before & (after | ~trains)
    return result


def _evaluation_batches(spans: Spans, events: Events, lives: Lives, rows: Ints) -> tuple[Bools, Bools]:
    """Whether the last batch or update before each of these rows, and the next one after it, is a batch for
    evaluation.
    """
    feeds = (lives.of_row >= 0) & (spans.kind != row.SHUTDOWN) & events.used
    items = np.flatnonzero(feeds | events.work)
    evaluates = feeds & ~lives.training_row
    kinds = np.concatenate([[False], evaluates[items], [False]])
    at = np.searchsorted(spans.start[items], spans.start[rows], side="right")
    return kinds[at], kinds[at + 1]


def untrained(seen: Seen, flagged: Bools, named: Bools, told: Bools, acting: set[int]) -> Untrained:
    """Sorts the forwards that train nothing; ``flagged`` are those of ``eval_forwards``, ``named`` those in a
    function that the user calls evaluation, ``told`` those that a framework's functions tell apart.

    ``acting``: groups of forwards (site and flags) known from an earlier piece to ask for what is trained on.
    """
    spans, events, stepping = seen.spans, seen.events, seen.stepping
    forward, built = events.forward & ~spans.inside(events.work), events.built
    in_span = spans.began(*stepping.span)
    evaluates, acts, shows = flagged.copy(), np.zeros(len(spans), np.bool_), np.zeros(len(spans), np.bool_)
    fed = np.zeros(len(spans), np.bool_)
    index = np.flatnonzero(forward)
    fed[index] = _evaluation_batches(spans, events, seen.lives, index)[0]
    trailing = forward & in_span & _after_last_update(seen, forward & built)
    models = (spans.flags & row.FORWARD_PARAMS) != 0  # a criterion or a metric has no parameters
    evaluates |= trailing & built & models
    served = forward & _after_socket(spans, events)
    asked = forward & (~built | events.eval_flags | _unused(seen, forward & built)) & ~fed & models & ~told
    begun = spans.start[events.step]
    for key, mine, rare in _groups(seen, asked):
        within = mine[in_span[mine]]
        marked = bool(events.eval_flags[mine].all())
        if len(within) and 2 * served[within].sum() > len(within):
            shows[mine], evaluates[mine] = True, False
        elif len(within) and 2 * trailing[within].sum() > len(within):
            evaluates[mine] = True
        elif marked or not len(within):  # switched to evaluation mode, or before and after training only
            evaluates[mine] &= rare or len(stepping) < LEAST_STEPS or not len(within)
        elif (
            rare
            and not stepping.by_loader
            and (key in acting or (len(begun) and spans.start[mine[0]] < begun[0]))
        ):
            acting.add(key)
            acts[mine] = True
        elif rare:
            evaluates[mine] = True
    evaluates |= named & forward & (~built | trailing)
    return Untrained(
        evaluates=evaluates & (named | ~acts), acts=acts & in_span & ~named, shows=shows & in_span & ~named
    )


def _groups(seen: Seen, asked: Bools) -> Iterator[tuple[int, Ints, bool]]:
    """These forwards by site and flags, and whether they are in few of all steps, and of each optimizer's:
    what is done whenever one steps is part of its step.
    """
    spans, stepping = seen.spans, seen.stepping
    in_span = spans.began(*stepping.span)
    stepped = np.flatnonzero(seen.events.step & in_span)
    steps, optimizers = stepping.of(spans.start[stepped]), spans.obj[stepped]
    kinds = [np.arange(len(stepping)), *(np.unique(steps[optimizers == n]) for n in np.unique(optimizers))]
    index = np.flatnonzero(asked)
    group = (spans.site[index].astype(np.int64) << 8) | spans.flags[index]
    for key in np.unique(group):
        mine = index[group == key]
        here = np.unique(stepping.of(spans.start[mine[in_span[mine]]]))
        yield (
            int(key),
            mine,
            len(stepping) >= LEAST_STEPS
            and all(np.isin(steps, here).mean() <= PART_OF_STEP_RATIO for steps in kinds),
        )


def _unused(seen: Seen, built: Bools) -> Bools:
    """[rows] of loops that make their own batches: many forwards in few steps, whose graphs no backward is
    for, as forwards of all steps come in between: a policy that acts with gradients.
    """
    spans, found = seen.spans, np.zeros(len(seen.spans), np.bool_)
    if seen.stepping.by_loader:
        return found
    groups = [mine for _, mine, rare in _groups(seen, built) if rare]
    usual = built.copy()
    for mine in groups:
        usual[mine] = False
    items = np.flatnonzero(seen.events.work | usual)
    for mine in groups:
        following = np.searchsorted(spans.start[items], spans.start[mine], side="right")
        before = following[following < len(items)]
        between = usual[items[before]] & is_many(spans.site[mine[: len(before)]], before)
        found[mine] = between.sum() > _MOSTLY * len(between)
    return found


def named_evaluation(spans: Spans, places: Places, functions: str) -> Bools:
    """[rows] those reached through functions of ``--evaluation``: FUNCTION or FILE.py:FUNCTION, by commas."""
    wanted = [one.rpartition(":")[::2] for one in functions.split(",") if one]
    sites = [
        number
        for number, stack in places.sites.items()
        for file, name in wanted
        if any(frame.file.endswith(file) and frame.func.split(".")[-1] == name for frame in stack.frames)
    ]
    return np.isin(spans.site, sites)


def _after_last_update(seen: Seen, built: Bools) -> Bools:
    """[rows] whether training work lies before, the loader's next batch is asked for before any more, and no
    forward is still to come that the batch asked for before is for (one may be fetched ahead).
    """
    spans, events = seen.spans, seen.events
    if not seen.stepping.by_loader:
        return np.zeros(len(spans), np.bool_)
    asked = events.fetch & seen.lives.training_row
    items = np.flatnonzero(events.work | asked)
    works = np.concatenate([[False], events.work[items], [True, True]])
    at = np.searchsorted(spans.start[items], spans.start, side="right")
    trailing = works[at] & ~works[at + 1]
    used = np.flatnonzero(events.work | asked | built)
    kinds = np.append(built[used], True)
    following = np.searchsorted(spans.start[used], spans.start, side="right")
    fetched = np.append(spans.start[items], np.iinfo(np.int64).max)[np.minimum(at, len(items))]
    after = np.searchsorted(spans.start[used], fetched, side="right")
    return np.asarray(trailing & np.where(built, kinds[after], ~kinds[following]))


def _after_socket(spans: Spans, events: Events) -> Bools:
    """[rows] of modules that are trained, after a socket was asked and with no training work in between."""
    sockets = spans.kind == row.SOCKET
    items = np.flatnonzero(sockets | events.work)
    asked = np.concatenate([[False], sockets[items]])
    return np.asarray(events.trained[spans.obj] & asked[np.searchsorted(spans.start[items], spans.start)])


def regions_of(seen: Seen, eval_forward: Bools, collects: Bools) -> Regions:
    """Runs of evaluation rows that no training row interrupts.

    ``collects``: forwards that make what is trained on.
    """
    spans, events, trains = seen.spans, seen.events, seen.lives.training_row
    feeds = (seen.lives.of_row >= 0) & (spans.kind != row.SHUTDOWN) & events.used
    forward, built = events.forward, events.built & ((spans.flags & row.FORWARD_PARAMS) != 0)
    evaluates = eval_forward | (feeds & ~trains)
    training = (feeds & trains) | events.work | ((built | collects) & ~eval_forward)
    items = np.flatnonzero(evaluates | training)
    kinds = evaluates[items]
    if not kinds.any():
        return NO_REGIONS
    edges = np.flatnonzero(np.diff(np.concatenate([[0], kinds.astype(np.int8), [0]])))
    opens, closes = edges[::2], edges[1::2]  # runs items[opens:closes]
    # Batches that no model sees are no evaluation: statistics of the data, an iterator made ready.
    modelled = np.append(0, np.cumsum(forward))
    has_model = modelled[items[closes - 1] + 1] > modelled[items[opens]]
    has_model |= _followed_by_forward(modelled, items, closes)
    if not forward.any() and events.work.any():  # no module is ever called: a renderer, a model of functions
        has_model |= items[opens] > np.argmax(events.work)
    opens, closes = opens[has_model], closes[has_model]
    if not len(opens):
        return NO_REGIONS
    opens, closes = _with_last_apart(spans.site[items].astype(np.int64), kinds, opens, closes, forward[items])
    first = items[opens]
    tops = spans.top[items]
    start = spans.start[spans.top[first]]
    end = np.array([spans.end[tops[a:b]].max() for a, b in zip(opens, closes, strict=True)], np.int64)
    return Regions(start=start, end=end, first=first)


def _with_last_apart(
    site: Ints, kinds: Bools, opens: Ints, closes: Ints, forward: Bools
) -> tuple[Ints, Ints]:
    """The runs, of which the last is two where no training follows and it goes on with forwards that none
    before it does: the test of the trained model, after its last evaluation.
    """
    begin, end = int(opens[-1]), int(closes[-1])
    before = np.concatenate([site[:0], *(site[a:b] for a, b in zip(opens[:-1], closes[:-1], strict=True))])
    usual = np.flatnonzero(np.isin(site[begin:end], before))
    at = begin + int(usual[-1]) + 1 if len(usual) else end
    if not kinds[end:].all() or not forward[at:end].any():
        return opens, closes
    return np.append(opens, at), np.append(closes[:-1], [at, end])


def _followed_by_forward(modelled: Ints, items: Ints, closes: Ints) -> Bools:
    """[runs] whether a forward lies between the end of a run and the next item; ``modelled`` counts them."""
    following = np.append(items, len(modelled) - 1)[np.minimum(closes, len(items))]
    return np.asarray(modelled[following] > modelled[items[closes - 1] + 1])


def outside_spans(spans: Spans, times: Ints, side: int) -> Ints:
    """Moves times that fall inside an outermost row to its start (-1) or end (1)."""
    tops = np.flatnonzero(spans.level == 0)
    at = holder(spans.start[tops], spans.end[tops], times)
    edges = (spans.start if side < 0 else spans.end)[tops]
    inside = at >= 0
    inside[inside] = times[inside] > spans.start[tops[at[inside]]]
    return np.where(inside, edges[at], times) if len(tops) else times


def widened(regions: Regions, seen: Seen, evaluates: Bools, samples: Table, places: Places) -> Regions:
    """The evaluations with the time of their own functions around them, as samples show it: metrics.

    Own are functions on the way to a forward that evaluates and to none of training.
    """
    spans, events = seen.spans, seen.events
    training = np.flatnonzero(events.work | (events.fetch & seen.lives.training_row))
    drawn = np.flatnonzero((spans.kind == row.LOG) & np.isin(spans.obj, _DRAWS) & events.used)
    stops = np.sort(np.concatenate([spans.start[spans.top[training]], spans.start[spans.top[drawn]]]))
    own = _functions(places.sites.get(int(n)) for n in np.unique(spans.site[evaluates]))
    own -= _functions(places.sites.get(int(n)) for n in np.unique(spans.site[training]))
    through = {number for number, stack in places.stacks.items() if not own.isdisjoint(_functions([stack]))}
    mine = np.isin(samples.value, list(through))
    start, end = regions.start.copy(), regions.end.copy()
    for i in range(len(start)):
        at = int(np.searchsorted(samples.start, start[i]))
        low = max([int(end[i - 1]) if i else 0, *stops[: np.searchsorted(stops, start[i])][-1:].tolist()])
        while at and mine[at - 1] and samples.start[at - 1] > low:
            at -= 1
            start[i] = max(low, int(samples.start[at] - samples.duration[at]))
        at = int(np.searchsorted(samples.start, end[i], side="right"))
        high = min([np.iinfo(np.int64).max, *stops[np.searchsorted(stops, end[i]) :][:1].tolist()])
        while at < len(samples) and mine[at] and samples.start[at] < high:
            end[i] = int(samples.start[at]) + 1
            at += 1
    end[:-1] = np.minimum(end[:-1], start[1:])  # metrics of one evaluation can run up to the next
    return Regions(
        start=outside_spans(spans, start, -1), end=outside_spans(spans, end, 1), first=regions.first
    )


def _functions(stacks: Iterable[Stack | None]) -> set[Function]:
    return {frame.function for stack in stacks if stack is not None for frame in stack.frames}
