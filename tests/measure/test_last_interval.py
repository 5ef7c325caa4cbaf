"""A pause after the last step counts where it is one of a series."""

from __future__ import annotations

import numpy as np
import pytest

from hotloop.measure.evaluation import Regions
from hotloop.measure.sites import with_last_interval
from hotloop.measure.stepping import Stepping


@pytest.mark.parametrize(
    ("after", "counts"),
    [((50,), True), ((25, 50, 75), True), ((1, 50), True), ((), False), ((1,), False), ((10, 20, 30), False)],
)
def test_the_last_pause_counts_where_the_others_make_it_expected(
    after: tuple[int, ...], counts: bool
) -> None:
    end = np.arange(1, 101) * 10
    steps = Stepping(
        start=end - 10, end=end, span=(0, 1000), by_loader=False, num_updates=100, backwards_per_update=1.0,
        driving=np.zeros(0, np.bool_), ready=0,
    )  # fmt: skip
    start = np.array([*(10 * one - 5 for one in after), 1000])
    pauses = Regions(start=start, end=start + 4, first=np.zeros(len(start), np.int64))
    longer = with_last_interval(steps, end - 5, pauses, later=False)
    assert longer.span == (0, 1004 if counts else 1000)
    assert longer.end[-1] == longer.span[1]
