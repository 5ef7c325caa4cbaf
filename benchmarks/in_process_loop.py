"""The loop of ``in_process.py``, run with the probe in it: blocks of steps with all of it, none, or one part.

    in_process_loop.py ROUNDS FEATURES HIDDEN BATCH STEPS WORKERS [ARM ...]

Prints a JSON line per round: for each arm what a step cost (``used``). An arm is ``on``, ``off`` or the part
that is left in alone. What is off holds what torch put there; without ``samples`` the clock is stopped.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hotloop.hooks.registry
import hotloop.probe.install
from hotloop import fast

#: Name of a patched attribute -> the part it belongs to; the others run once an epoch or never.
PARTS = {
    "__next__": "next",
    "fetch": "fetch",
    "__call__": "modules",
    "backward": "backward",
    "zero_grad": "zero_grad",
}
#: Steps at the beginning of a block that are not counted, and at least this part of those that are: what is
#: patched has changed, and the interpreter specializes anew, each place after some 50 calls of it.
WARM, WARM_PART = 5, 0.4


class Probe:
    """What the installed probe has patched: ``leave`` leaves one part in, until ``restore``."""

    def __init__(self) -> None:
        installed = hotloop.probe.install.current()
        assert installed is not None, "run under in_process.py"
        self._patched = list(installed.hooks._patched)
        module = sys.modules["torch.optim.optimizer"]
        optimizers = (module._global_optimizer_pre_hooks, module._global_optimizer_post_hooks)
        self._called = [("optimizer", one) for one in optimizers] + [("collections", gc.callbacks)]
        self._kept = [one.copy() for _, one in self._called]

    def leave(self, arm: str) -> None:
        if arm == "on":
            return
        if arm != "samples":
            fast.hold()
        for part, called in self._called:
            if part != arm:
                called.clear()
        for owner, name, own, _ in reversed(self._patched):
            if PARTS.get(name, "epochs") == arm:
                continue
            missing = own is hotloop.hooks.registry._MISSING
            delattr(owner, name) if missing else setattr(owner, name, own)

    def restore(self) -> None:
        for owner, name, _, wrapper in self._patched:
            setattr(owner, name, wrapper)
        for (_, called), kept in zip(self._called, self._kept, strict=True):
            called.clear()
            called.update(kept) if isinstance(kept, dict) else called.extend(kept)
        fast.go_on()


def training(features: int, hidden: int, batch: int, workers: int) -> tuple[Any, Callable[[Any, Any], None]]:
    """A loader of 4096 samples, and a step on one of its batches."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(4096, features), torch.randint(0, 10, (4096,)))
    loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True, num_workers=workers)
    model = nn.Sequential(
        nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def step(x: Any, y: Any) -> None:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return loader, step


def used() -> list[float]:
    """What this process has used so far, in the order of ``in_process.COLUMNS``.

    Seconds by the clock, of the training thread's CPU time (in all, in ``next``, in the step: these two are
    filled in), of other threads, of workers from fork to exit; page faults and context switches.
    """
    own, thread = time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return [
        time.perf_counter(), own, 0.0, 0.0, time.process_time() - own, children.ru_utime + children.ru_stime,
        thread.ru_minflt, thread.ru_nvcsw, thread.ru_nivcsw,
    ]  # fmt: skip


def blocks(loader: Any, step: Callable[[Any, Any], None], count: int, fresh: bool) -> Iterator[list[float]]:
    """What each block of ``count`` steps took; with ``fresh`` a block is an epoch with workers of its own."""
    batches: Any = iter(())
    while True:
        if fresh:
            batches, warm, before = iter(()), 0, used()
        else:
            warm, before = max(WARM, round(WARM_PART * count)), []
        asking = stepping = turn = 0
        while turn < warm + count:
            if turn == warm:
                before, asking, stepping = before or used(), 0, 0
            start = time.thread_time_ns()
            item = next(batches, None)
            if item is None:
                batches = iter(loader)
                item = next(batches)
            fetched = time.thread_time_ns()
            step(*item)
            stepping += time.thread_time_ns() - fetched
            asking += fetched - start
            turn += 1
        if fresh:
            batches = item = None  # the workers end, and are counted
        spent = [after - then for then, after in zip(before, used(), strict=True)]
        spent[2:4] = asking / 1e9, stepping / 1e9
        yield [value / count * (1e6 if at < 6 else 1) for at, value in enumerate(spent)]


def main(
    rounds: int, features: int, hidden: int, batch: int, count: int, workers: int, arms: Sequence[str]
) -> None:
    loader, step = training(features, hidden, batch, workers)
    block = blocks(loader, step, min(count, len(loader)) if workers else count, fresh=workers > 0)
    for _ in range(2 if workers else 10):
        next(block)
    probe, chance = Probe(), random.Random(0)
    for turn in range(rounds):
        # Of two arms every other round runs backwards: what drifts evenly cancels.
        order = (
            list(arms)[:: 1 if turn % 2 else -1] if len(arms) == 2 else chance.sample(list(arms), len(arms))
        )
        found = {}
        for arm in order:
            probe.leave(arm)
            try:
                found[arm] = next(block)
            finally:
                if arm != "on":
                    probe.restore()
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:7]), sys.argv[7:] or ["on", "off"])
