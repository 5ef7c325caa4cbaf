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
    """One entry per rank: steps, seconds, phases; ``own_s_per_step`` is without waiting for others."""
    return [
        {
            "rank": steps.rank,
            "pid": steps.pid,
            "num_steps": steps.num_steps,
            "wall_s": steps.wall_s,
            "span_s": steps.span_s,
            "s_per_step": steps.step_s if steps.num_steps else None,
            "own_s_per_step": _own(steps) if steps.num_steps else None,
            "phases": {name: steps.per_step(name) for name in PHASES if steps.per_step(name) > 0},
            "unaccounted_s": steps.unaccounted_s,
            "collective_in_backward_s": steps.collective_in_backward_s,
        }
        for steps in ranks
    ]


def slowest(ranks: Sequence[Steps]) -> int | None:
    """The rank whose own work holds the others up; None where they are even or it cannot be told.

    Ranks of one job take equally long steps, because the fast ones wait. Waiting is in the collectives, and
    with DistributedDataParallel inside backward, with sharded parameters inside forward too: the second look
    leaves these out.
    """
    working = [steps for steps in ranks if steps.num_steps]
    if len(working) < 2:
        return None
    for own in (_own, _where_none_waits):
        found = _stands_out([(own(steps), steps) for steps in working])
        if found is not None:
            return found.rank
    return None


def _stands_out(values: Sequence[tuple[float, Steps]]) -> Steps | None:
    ordered = sorted(values, key=lambda pair: (pair[0], pair[1].rank))
    middle = ordered[(len(ordered) - 1) // 2][0]
    value, steps = ordered[-1]
    return steps if value - middle > SLOWER_RATIO * steps.step_s else None


def _own(steps: Steps) -> float:
    return max(0.0, steps.step_s - steps.per_step("collective") - steps.collective_in_backward_s)


def _where_none_waits(steps: Steps) -> float:
    return max(0.0, steps.step_s - sum(steps.per_step(phase) for phase in steps.waits_inside))
