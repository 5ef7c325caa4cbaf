"""A first pass over the data that waits for what later passes find kept: a cache that fills, files read once.

What it costs fades with every epoch; a figure averaged over the first few describes no other one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hotloop.diagnose.limits import Limits
from hotloop.measure.steps import LoaderUse, Steps

#: Steps at the start of each pass that are left out: workers that begin, queues that fill.
_BEGIN: Final = 1
#: Later steps that work longer by this part of what they wait less hide the wait.
_HIDDEN: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class FirstPass:
    """Seconds that a step of the first pass waited for data, and one of the later passes."""

    num_steps: int
    wait_s: float
    later_s: float
    excess_s: float  # of the training span, in all
    share: float  # of all steps

    def after(self, loader: LoaderUse) -> LoaderUse:
        """The loader with the makes of later passes only."""
        return replace(loader, make_s=loader.make_s[round(self.share * len(loader.make_s)) :])


def first_pass(steps: Steps, limits: Limits) -> FirstPass | None:
    """The first pass, where each later one waited far less; None where there is none, or none to compare."""
    loader = steps.train_loader()
    if loader is None or not loader.batches_per_epoch or not loader.num_batches or loader.num_iterators < 2:
        return None
    length = round(loader.batches_per_epoch * steps.num_steps / max(loader.num_batches, 1))
    passes = steps.num_steps // length if length else 0
    if passes < 2 or length < limits.min_steps:
        return None
    if any(one.role == "train" and len(one.wait_s) for one in steps.loaders if one is not loader):
        return None  # others feed the steps too
    wait = steps.phase("data_wait")
    turns = [slice(at + _BEGIN, at + length) for at in range(0, passes * length, length)]
    means = [float(wait[turn].mean()) for turn in turns]
    medians = [float(np.median(wait[turn])) for turn in turns]  # a disturbance is of some steps
    first, later = means[0], max(means[1:])
    if later > limits.later_pass_ratio * first or first - later < limits.worth_fixing_ratio * steps.step_s:
        return None
    if max(medians[1:]) > limits.later_pass_ratio * medians[0]:
        return None
    busy = np.asarray(steps.end_s) - np.asarray(steps.start_s) - steps.phase("data_wait")
    slower = min(float(busy[turn].mean()) for turn in turns[1:]) - float(busy[turns[0]].mean())
    if slower > _HIDDEN * (first - later):  # workers have longer for a batch: nothing is kept
        return None
    excess = float(np.maximum(0.0, wait[:length] - later).sum())
    usual = float(np.mean(means[1:]))
    share = length / steps.num_steps
    return FirstPass(num_steps=length, wait_s=first, later_s=usual, excess_s=excess, share=share)
