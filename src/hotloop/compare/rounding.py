"""What a training makes of rounding: runs of the base whose weights were moved by their last bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hotloop.compare.items import Check
from hotloop.measure.steps import Floats

#: How many times the difference of such a run, so many losses later, is still rounding. A change rounds in
#: every step, and a training may multiply that by 20 in one.
ROUNDED: Final = 30.0
LATER: Final = 3


def as_rounding(
    a: Floats, b: Floats, moved: Sequence[Floats], *, least: float, learned: float, begins: str
) -> Check | None:
    """Close, where the candidate is never further from the base than its runs that rounding parted are.

    ``least`` is rounding in any case, ``learned`` how far the base's loss moved.
    """
    apart, *rest = (np.maximum.accumulate(np.abs(a - one)) for one in (b, *moved))
    rounding = np.max(rest, axis=0)
    limit = np.maximum(ROUNDED * np.append(rounding[LATER:], [rounding[-1]] * LATER), least)
    if (apart > limit).any():
        return None
    words = (
        f"apart by {apart[-1]:.2g}, and the base by {rounding[-1]:.2g} where the last bit of its weights was "
        f"moved; {begins}"
    )
    if len(lost := np.flatnonzero(rounding > learned / 2)):
        words += f"; from loss {lost[0] + 1:,} on rounding hides what else may differ"
    return Check(outcome="close", words=words, distance=float(apart[-1]), limit=float(limit[-1]))
