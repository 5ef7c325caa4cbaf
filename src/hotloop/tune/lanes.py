"""Rounds on several machines at once. Launches are compared with those of the same machine only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hotloop.tune.launching import Launcher, Spent
from hotloop.tune.trial import Arm, Trial, spell


def lanes(
    launcher: Launcher,
    key: str,
    have: Arm | None,
    arms: Sequence[Arm],
    *,
    back: bool = False,
    skip: Callable[[Arm, Mapping[str, Trial]], bool] | None = None,
) -> list[dict[str, Trial]]:
    """One launch of each arm by its spelling, and of the arm to beat where one is given; ``back``: backwards.

    With one machine that is a round (``Launcher.round``). With several each takes a share of the arms, and
    launches the arm to beat beside them; of few arms each is launched on several machines. Raises Spent.
    """
    many = launcher.bench.nodes
    if many == 1:
        turns = arms if have is None else [have, *arms]
        return [launcher.round(key, turns[::-1] if back else turns, skip)]
    shares = [[have or (), *(arms[lane::many] or [arms[lane % len(arms)]])] for lane in range(many)]
    wanted = [
        {f"{key}/{f'{lane}: ' * (lane > 0)}{spell(arm)}": arm for arm in (share[::-1] if back else share)}
        for lane, share in enumerate(shares)
    ]
    _side_by_side(launcher, wanted)
    launcher.journal.finish(key)
    known = launcher.journal.trials
    return [{spell(arm): launcher.warm(known[name]) for name, arm in lane.items()} for lane in wanted]


def _side_by_side(launcher: Launcher, wanted: Sequence[Mapping[str, Arm]]) -> None:
    """Have the trials of these keys in the journal, each mapping launched on a machine of its own."""
    if all(key in launcher.journal.trials for lane in wanted for key in lane):
        return
    steps, patience_s, left_s = launcher.steps, launcher.patience_s, launcher.left_s
    asked = [
        [
            launcher.request(arm, steps=launcher.steps_of(arm, steps), timeout_s=patience_s)
            for arm in lane.values()
        ]
        for lane in wanted
    ]
    launcher.say.trying(f"{sum(map(len, asked))} launches", 1 - max(0.0, left_s) / launcher.budget_s)
    done = launcher.bench.beside(asked, left_s)
    for lane, requests, ran in zip(wanted, asked, done, strict=True):
        for key, request, one in zip(lane, requests, ran, strict=False):
            launcher.judge(key, request, one, one.wall_s)
    if any(len(requests) > len(ran) for requests, ran in zip(asked, done, strict=True)):
        launcher.spent = True
        raise Spent("the budget is spent")
