"""Several ranks side by side: which one leads the report, and which one the others wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hotloop.measure.steps import Steps
from hotloop.phases import PHASES

#: A rank is called slowest only where its own work is this much longer than the median rank's.
SLOWER_RATIO: Final = 0.03


def lead(ranks: Sequence[Steps]) -> Steps | None:
    """The rank the report speaks about: the slowest, which sets the pace; else most steps, then lowest rank.

    In a rank that waits for another all time is backward or collective, whatever the cause.
    """
    slow = slowest(ranks)
    if slow is not None:
        return next(steps for steps in ranks if steps.rank == slow and steps.num_steps)
    return max(ranks, key=lambda steps: (steps.num_steps, -steps.rank), default=None)


def summaries(ranks: Sequence[Steps]) -> list[dict[str, Any]]:
    """One entry per rank: steps, seconds, phases; ``own_s_per_step`` leaves out where ranks meet."""
    return [
        {
            "rank": steps.rank,
            "pid": steps.pid,
            "num_steps": steps.num_steps,
            "wall_s": steps.wall_s,
            "span_s": steps.span_s,
            "s_per_step": steps.step_s if steps.num_steps else None,
            "own_s_per_step": steps.own_s if steps.num_steps else None,
            "phases": {name: steps.per_step(name) for name in PHASES if steps.per_step(name) > 0},
            "unaccounted_s": steps.unaccounted_s,
            "collective_in_backward_s": steps.collective_in_backward_s,
        }
        for steps in ranks
    ]


def slowest(ranks: Sequence[Steps]) -> int | None:
    """The rank whose own work holds the others up; None where they are even or it cannot be told.

    Ranks of one job take equally long steps, because the fast ones wait where all meet. What comes rarely may
    be in the stretches of a rank that was read in part, or not: such ranks are not compared.
    """
    known = [steps for steps in ranks if steps.num_steps and not steps.partly]
    ordered = sorted(known, key=lambda one: (one.own_s, one.rank))
    if len(ordered) < 2:
        return None
    middle, last = ordered[(len(ordered) - 1) // 2], ordered[-1]
    return last.rank if last.own_s - middle.own_s > SLOWER_RATIO * last.step_s else None
