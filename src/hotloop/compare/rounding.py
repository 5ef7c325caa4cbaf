"""What a training makes of rounding: runs of the base whose weights were moved by their last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hotloop.compare.items import Check
from hotloop.measure.steps import Floats

#: How many times the difference of such a run, so many losses later, is still rounding: each is counted from
#: where it begins. A change rounds in every step, and a training may multiply that by 20 in one.
ROUNDED: Final = 30.0
LATER: Final = 3


def as_rounding(
    a: Floats, b: Floats, moved: Sequence[Floats], *, least: float, seen: float, begins: str
) -> Check | None:
    """Close, where the candidate parts from the base no faster than the base's runs that rounding parted.

    ``least`` is rounding in any case, ``seen`` the least that would be seen without such runs.
    """
    apart, *others = (_from_its_first(a, one) for one in (b, *moved))
    rounding = np.max(
        [np.pad(o, (0, len(a) - len(o)), "edge") for o in others if len(o)] or [np.zeros(len(a))], 0
    )
    limit = np.maximum(ROUNDED * np.append(rounding[LATER:], [rounding[-1]] * LATER), least)
    if not len(apart) or not rounding[-1] or (apart > limit[: len(apart)]).any():
        return None
    words = (
        f"apart by {apart[-1]:.2g}, and the base by {rounding[-1]:.2g} where the last bit of its weights was "
        f"moved; {begins}"
    )
    if len(lost := np.flatnonzero(limit[: len(apart)] > seen)):
        since = f"{lost[0]:,} losses after that" if lost[0] else "from there on"
        words += f"; {since} rounding hides what else may differ"
    return Check(outcome="close", words=words, distance=float(apart[-1]), limit=float(limit[len(apart) - 1]))


def _from_its_first(a: Floats, b: Floats) -> Floats:
    """How far two courses were apart at most, from their first difference on; empty where there is none."""
    different = np.flatnonzero(a != b)
    return np.maximum.accumulate(np.abs(a - b))[different[0] if len(different) else len(a) :]
