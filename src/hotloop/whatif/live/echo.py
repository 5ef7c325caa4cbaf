"""The step alone: one batch handed out again and again, and what the loop takes from one to the next.

For a launch that is thrown away. A step that follows a wait finds its code and data no longer in the caches,
and cores asleep: how long one takes that waits for nothing, no recording of waiting steps says.
"""

from __future__ import annotations

import os
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

from hotloop.clock import now_ns
from hotloop.whatif.live.blocks import WARM_UP
from hotloop.whatif.live.feeder import patch_next_data

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

_NAME: Final = "echo"
#: Steps that warm up; then so many, for so long; for the patience of long ones fewer will do.
_WARM: Final = 5
_STEPS: Final = 30
_MOST_STEPS: Final = 400
_LONG_NS: Final = 400_000_000
_PATIENCE_NS: Final = 3_000_000_000
_LEAST: Final = 4
#: A step so many times as long as the median of its kind, with an update or without, held an evaluation or
#: a checkpoint.
_APART: Final = 3.0
#: After so many updates without a step that counts none will: steps of several loaders, fed by a thread.
_IN_VAIN: Final = 20


class Echo:
    """Waits for the loop that trains, keeps a batch of its loader, and times what follows."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._last = 0  # the loader fetched from last
        self._drives = 0
        self._rounds = 0
        self._batch: Any = None
        self._begun = self._given = 0
        self._updated = False  # since the batch was given
        self._times: list[tuple[bool, int]] = []
        self._counted = probe.hooks.guard(_NAME, self._count)

    def install(self) -> None:
        """Only in a process that trains by itself: ranks would have to end at the same step."""
        if int(os.environ.get("WORLD_SIZE") or 1) > 1:
            return
        self._probe.hooks.on_import("torch.utils.data.dataloader", self._install, _NAME)
        self._probe.on_update(_NAME, self._update)

    def _install(self, module: Any) -> None:
        patch_next_data(self._probe.hooks, module, _NAME, self._fetch)

    def _update(self) -> None:
        rounds = self._probe.count.rounds
        self._updated = True
        if rounds >= _IN_VAIN and not self._times:
            self._probe.count.limit = 1
        if rounds != self._rounds and not self._drives:
            self._rounds = rounds
            self._drives = self._last if rounds >= WARM_UP else 0

    def _fetch(self, iterator: Any, original: Any) -> Any:
        asked = now_ns()
        number = self._probe.loaders.loader_of(iterator)
        if not self._drives or number != self._drives:
            self._last = number
            self._given = 0  # another loader's batch belongs to no step of this one
            return original(iterator)
        if self._batch is None:
            self._batch = original(iterator)
        elif self._given and not self._probe.count.limit:
            self._counted(asked)
        self._begun = self._begun or asked
        batch = copied(self._batch, self._probe.torch.Tensor)
        self._updated = False
        self._given = now_ns()
        return batch

    def _count(self, asked: int) -> None:
        self._times.append((self._updated, asked - self._given))
        spent, num = asked - self._begun, len(self._times) - _WARM
        enough = num >= _MOST_STEPS or (num >= _STEPS and spent > _LONG_NS)
        if enough or (num >= _LEAST and spent > _PATIENCE_NS):
            self._end()

    def _end(self) -> None:
        times = self._times[_WARM:]
        updates = [number for number, (updated, _) in enumerate(times) if updated]
        if len(updates) > 1:  # whole cycles of those that accumulate
            times = times[updates[0] + 1 : updates[-1] + 1]
        kept: list[int] = []
        for kind in {updated for updated, _ in times}:
            alike = [time_ns for updated, time_ns in times if updated == kind]
            kept += [one for one in alike if one <= _APART * median(alike)]
        self._probe.note("echo", steps=len(kept), left_out=len(times) - len(kept), step_s=fmean(kept) / 1e9)
        self._probe.count.limit = 1  # ends the run at the next boundary, in an orderly way


def copied(batch: Any, tensor: Any) -> Any:
    """The same batch anew: a step may take it apart, or scale it in place until it is no number any more."""
    if type(batch) is dict:
        return {name: copied(value, tensor) for name, value in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(copied(value, tensor) for value in batch)
    if type(batch) is tensor and batch.is_cpu and not batch.requires_grad and not batch.is_pinned():
        return batch.clone()
    return batch
