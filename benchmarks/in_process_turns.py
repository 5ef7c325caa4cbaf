"""What the probe costs a step of the medium loop, with and without it in turn step by step.

    python benchmarks/in_process_turns.py [--processes 8] [--rounds 1000] [--warm 1100] [--loop small]
        [--parts]

A round is a step with everything patched and the timer of the stack samples running, and one with what torch
put there and no timer, in random order; with ``--parts`` also one for each part left in alone. All meet the
same memory and the same state of the machine, so few steps tell what blocks of them (``in_process.py``) do
not. ``iter()`` of an epoch is timed apart, and its difference divided by the steps of an epoch. Times are CPU
time of the training thread, which other programs disturb little. Means, because much of the cost is rare (a
sample, a batch looked at); the hundredth of the rounds that differ most is left out. Caches are emptied
before each step: what changed the patches has just touched them.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import in_process

#: Of the rounds, those that differ most: another program had the core.
LEFT_OUT = 0.01
#: Arms in which what is due now and then is done.
TICKING = ("on", "optimizer")
PARTS = tuple(part for part in in_process.PARTS if part != "epochs")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1000, help="for each process")
    parser.add_argument("--warm", type=int, default=1100, help="steps before: some looks are rarer by then")
    parser.add_argument("--loop", default="medium", choices=("small", "medium"))
    parser.add_argument("--parts", action="store_true", help="what each part of the probe costs alone")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    arms = ["off", *(PARTS if args.parts else ()), "on"]
    inner = list(map(str, (args.rounds, args.warm, *in_process.LOOPS[args.loop][:3], *arms)))
    found = []
    for _ in range(args.processes):
        with tempfile.TemporaryDirectory() as raw:
            found.append(json.loads(in_process.python(__file__, *inner, raw=raw)))
    table = {
        "loop": args.loop,
        "rounds": args.rounds,
        "warm": args.warm,
        **{arm: told(found, arm) for arm in arms[1:]},
    }
    for arm in arms[1:]:
        one = table[arm]
        low, high, bare = *one["ci95_us"], one["without_us"]
        print(
            f"{arm:<12}{one['cost_us']:+7.1f} us a step ({low:+.1f} .. {high:+.1f}) of {bare:.0f}: "
            f"{one['cost_us'] / bare:.2%} ({low / bare:.2%} .. {high / bare:.2%})"
        )
    print(f"of it iter() {table['on']['epoch_us']:.1f} us a step")
    if args.out:
        args.out.write_text(json.dumps(table, indent=1) + "\n")
    return 0


def told(found: Sequence[dict[str, Any]], arm: str) -> dict[str, Any]:
    """What an arm costs over all processes, its interval a bootstrap over them."""
    chance = random.Random(0)
    steps = [mean([one[arm] - one["off"] for one in process["steps"]]) for process in found]
    epochs = [mean(process["epochs"]) / process["steps_an_epoch"] for process in found]
    whole = [step + (epoch if arm == "on" else 0) for step, epoch in zip(steps, epochs, strict=True)]
    drawn = sorted(statistics.mean(chance.choices(whole, k=len(whole))) for _ in range(4000))
    bare = [statistics.median(one["off"] for one in process["steps"]) for process in found]
    return {
        "cost_us": statistics.mean(whole),
        "ci95_us": [drawn[100], drawn[3899]],
        "epoch_us": statistics.mean(epochs),
        "without_us": statistics.mean(bare),
        "of_processes_us": [round(value, 1) for value in whole],
    }


def mean(differences: Sequence[float]) -> float:
    """The mean of those that are not far out."""
    middle = statistics.median(differences)
    near = sorted(differences, key=lambda value: abs(value - middle))
    return statistics.mean(near[: max(1, round(len(near) * (1 - LEFT_OUT)))])


def measure(rounds: int, warm: int, features: int, hidden: int, batch: int, arms: Sequence[str]) -> None:
    """Inside the observed process: prints what the steps of every round and every ``iter()`` took."""
    import in_process_loop
    import torch

    import hotloop.probe.install

    loader, step = in_process_loop.training(features, hidden, batch, 0)
    for _ in range(-(-warm // len(loader))):
        for item in loader:
            step(*item)
    probe, chance = in_process_loop.Probe(), random.Random(0)
    observing = hotloop.probe.install.current()
    assert observing is not None
    junk, ended = torch.zeros(2 << 20), time.perf_counter_ns()

    def turn(arm: str, work: Callable[[], Any]) -> tuple[Any, float]:
        nonlocal ended
        probe.restore()  # samples come as if they had come all the time
        probe.leave(arm)
        junk.add_(1)
        if arm in TICKING:  # what is done once in a while is not due sooner for the time between its steps
            observing.count.next_tick += time.perf_counter_ns() - ended
        before = time.thread_time_ns()
        result = work()
        took = (time.thread_time_ns() - before) / 1e3
        ended = time.perf_counter_ns() if arm in TICKING else ended
        return result, took

    steps: list[dict[str, float]] = []
    epochs: list[float] = []
    batches: Any = None

    def one() -> None:
        step(*next(batches))

    left = 0
    while len(steps) < rounds:
        spent: dict[str, float] = {}
        for arm in chance.sample(list(arms), len(arms)):
            if not left:
                made = {one: turn(one, lambda: iter(loader)) for one in chance.sample(["on", "off"], 2)}
                batches, left = made["on"][0], len(loader)
                epochs.append(made["on"][1] - made["off"][1])
            spent[arm] = turn(arm, one)[1]
            left -= 1
        steps.append(spent)
    print(json.dumps({"steps": steps, "epochs": epochs, "steps_an_epoch": len(loader)}))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1].isdigit():
        measure(*map(int, sys.argv[1:6]), sys.argv[6:])
    else:
        sys.exit(main())
