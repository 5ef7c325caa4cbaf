"""Whether code that was written anew computes what it did: the losses of two short runs beside each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hotloop.compare.losses import seeded
from hotloop.compare.trace import Trace

#: Updates of each run: enough for what a rewriting gets wrong at once, or at the second turn of a branch.
STEPS: Final = 32


@dataclass(frozen=True, kw_only=True)
class Held:
    """``same`` is None where nothing can be told."""

    same: bool | None
    words: str


def held(
    base: Trace | None, candidate: Trace | None, again: Callable[[], Trace | None], *, exact: bool
) -> Held:
    """The losses of a run as it is beside those of the rewritten one; ``exact``: the same bits are wanted.

    ``again`` gives another run as it is, and is called where losses differ: what does not repeat its own
    tells nothing.
    """
    if base is None or candidate is None or not base.recorded or not candidate.recorded:
        return Held(same=None, words="no losses were seen")
    found = seeded(base, candidate)
    if found.outcome == "bit-equal" or (not exact and found.outcome in ("close", "indistinct")):
        return Held(same=True, words=found.words)
    if found.outcome == "not-measured" or (found.outcome == "indistinct" and found.distance == 0):
        return Held(same=None, words=found.words)
    repeat = again()
    own = seeded(base, repeat) if repeat is not None and repeat.recorded else None
    if repeat is None or own is None or own.outcome in ("differs", "not-measured"):
        return Held(same=None, words="the run as found does not give the same losses twice")
    if own.outcome != "bit-equal":
        found = seeded(base, candidate, [repeat])
        return Held(same=found.outcome != "differs", words=found.words)
    return Held(same=False, words=found.words)
