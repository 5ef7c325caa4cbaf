"""The ways by which call sites were reached: a site's own stack is that of its first call only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from hotloop.measure.places import Frame, Places, Stack
from hotloop.measure.spans import Bools, Ints, Spans, Table, innermost

#: A way that fewer of the samples take than this is not told.
_WAY_RATIO = 0.05
#: With fewer samples the stack of the first call stands, where that was one of the calls asked for: of two
#: ways taken alike they would miss one in 1 of 16 cases.
_FEWEST_SAMPLES = 4


class Ways:
    """What samples inside rows tell of who called them.

    A policy that acts and trains calls its layers at one line of its own, and two statements of the loop lead
    there.
    """

    def __init__(self, places: Places, spans: Spans, samples: Table) -> None:
        self._places = places
        self._spans = spans
        owner = innermost(spans, samples.start)
        held = owner >= 0
        self._owner = owner[held]
        self._stack = samples.value[held].astype(np.int64)
        sites, first = np.unique(spans.site, return_index=True)
        self._first: dict[int, int] = dict(zip(sites.tolist(), first.tolist(), strict=True))

    def of(self, numbers: Iterable[int], rows: Bools) -> tuple[Stack, ...]:
        """The stacks by which the sites were reached in these rows; sites of one function share theirs."""
        functions: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for number in numbers:
            own = self._places.sites.get(number)
            if own is not None and own.frames:
                functions[own.frames[-1].function].append(number)
        inside = rows[self._owner]
        sites, stacks = self._spans.site[self._owner[inside]], self._stack[inside]
        found: list[Stack] = []
        for function, members in functions.items():
            first = any(rows[self._first[number]] for number in members if number in self._first)
            above = self._above(function, stacks[np.isin(sites, members)], _FEWEST_SAMPLES if first else 1)
            for number in members:
                own = self._places.sites[number]
                found += [Stack(frames=(*frames, own.frames[-1])) for frames in above] or [own]
        return tuple(found)

    def _above(self, function: tuple[str, str, int], stacks: Ints, fewest: int) -> list[tuple[Frame, ...]]:
        """The frames above a function in samples; empty where they are too few."""
        seen: dict[tuple[Frame, ...], int] = defaultdict(int)
        for number, count in zip(*np.unique(stacks, return_counts=True), strict=True):
            stack = self._places.stacks.get(int(number))
            frames = stack.frames if stack else ()
            at = next((i for i in reversed(range(len(frames))) if frames[i].function == function), None)
            if at is not None:
                seen[frames[:at]] += int(count)
        total = sum(seen.values())
        if total < fewest:
            return []
        return [frames for frames, count in seen.items() if count >= _WAY_RATIO * total]
