"""What whole stacks of the training thread took, by phase: what a flame graph is drawn of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from hotloop.measure.lines import Sampled
from hotloop.measure.places import Places
from hotloop.measure.steps import StackCost
from hotloop.phases import PHASES


def main_stacks(sampled: Sampled, places: Places) -> tuple[StackCost, ...]:
    """Seconds by phase and stack: the user's frames, outermost first, and the library's functions below."""
    samples = sampled.samples
    keys = (samples.value.astype(np.int64) << 8) | sampled.phase
    unique, which = np.unique(keys, return_inverse=True)
    seconds = np.bincount(which, weights=samples.duration, minlength=len(unique)) / 1e9
    found = []
    for key, spent in zip(unique.tolist(), seconds.tolist(), strict=True):
        stack = places.stacks.get(key >> 8)
        if stack is None:
            continue
        own = [(frame.func, frame.file, frame.line) for frame in stack.frames]
        below = [
            (entry.partition(":")[2] or entry, entry.partition(":")[0], 0)
            for entry in stack.library
            if not entry.startswith("importlib._bootstrap")  # a dozen boxes for each import
        ]
        found.append(StackCost(phase=PHASES[key & 0xFF], frames=(*own, *below), seconds=spent))
    return tuple(found)


def merge_stacks(stacks: Iterable[StackCost]) -> tuple[StackCost, ...]:
    """Those of all pieces of a long recording, equal ones added up."""
    sums: dict[tuple[str, tuple[tuple[str, str, int], ...]], float] = defaultdict(float)
    for one in stacks:
        sums[one.phase, one.frames] += one.seconds
    return tuple(
        StackCost(phase=phase, frames=frames, seconds=spent) for (phase, frames), spent in sums.items()
    )
