"""Proof by running: the losses of a short changed run beside those of an unmodified one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hotloop.compare.losses import seeded
from hotloop.compare.trace import Trace

#: Updates of each run: enough for what a rewriting gets wrong at once, or at the second turn of a branch.
STEPS: Final = 32


@dataclass(frozen=True, kw_only=True)
class SameLosses:
    """``same`` is None where nothing can be told."""

    same: bool | None
    words: str


def same_losses(
    base: Trace | None, candidate: Trace | None, again: Callable[[], Trace | None], *, exact: bool
) -> SameLosses:
    """The losses of an unmodified run beside those of a changed one; ``exact``: the same bits are wanted.

    ``again`` gives another unmodified run, and is called where losses differ: what does not repeat its own
    tells nothing.
    """
    if base is None or candidate is None or not base.recorded or not candidate.recorded:
        return SameLosses(same=None, words="no losses were seen")
    found = seeded(base, candidate)
    if found.outcome == "bit-equal" or (not exact and found.outcome == "close"):
        return SameLosses(same=True, words=found.words)
    told_nothing = found.outcome == "indistinct" and (not exact or found.distance == 0)
    if told_nothing or found.outcome == "not-measured":
        return SameLosses(same=None, words=found.words)
    repeat = again()
    own = seeded(base, repeat) if repeat is not None and repeat.recorded else None
    if repeat is None or own is None or own.outcome in ("differs", "not-measured"):
        return SameLosses(same=None, words="the unmodified run does not give the same losses twice")
    if own.outcome != "bit-equal":
        found = seeded(base, candidate, [repeat])
        same = None if found.outcome == "indistinct" else found.outcome != "differs"
        return SameLosses(same=same, words=found.words)
    return SameLosses(same=False, words=found.words)
