"""``num_workers="auto"`` against an exhaustive grid of workers x prefetching, and against PyTorch's defaults.

    python benchmarks/feed/auto.py [--rounds 3] [--seconds 0.8] [--only REGEX] [--out FILE]

Six datasets, each in a process of its own: one that waits (I/O), one that computes, tiny samples, huge ones,
a heavy tail, and a cached set. Every way of feeding keeps its iterator and its workers through all rounds and
takes turns with the others; a turn first uses up what was made ahead while others ran, without training: in
the time of steps as much would be made again. Auto is first left alone until it has settled, and how long
that took is reported. The training step is a sleep, as of a host that waits for its device. On a machine
that does something else meanwhile the numbers say nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
import torch
from harness import Target
from torch.utils.data import DataLoader, Dataset, Sampler

NUM_SAMPLES = 2048
WORKERS = (1, 2, 4, 8)
PREFETCH = (2, 4)
AUTO, DEFAULTS = "auto", "PyTorch's defaults"
#: Auto is settled after this long, or measured as it is.
SETTLE_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One dataset, its batches and the step they are trained with."""

    dataset: Dataset[Any]
    batch_size: int
    step_s: float


class Waits(Dataset[torch.Tensor]):
    """Seconds of waiting per sample, the same for the same sample: a constant, or with a heavy tail."""

    def __init__(self, mean_s: float, spread: float = 0.0) -> None:
        sigma = math.sqrt(math.log1p(spread**2))
        chance = random.Random(1)
        draws = [math.exp(chance.gauss(-sigma * sigma / 2, sigma)) for _ in range(NUM_SAMPLES)]
        self.seconds = [mean_s * draw for draw in draws]

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds[index])
        return torch.full((256,), float(index))


class Computes(Dataset[torch.Tensor]):
    """Holds the interpreter for some milliseconds, as decoding and augmenting in Python do."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        total = 0
        for number in range(40_000):
            total += number ^ index
        return torch.full((256,), float(total))


class Stored(Dataset[torch.Tensor]):
    """Rows of one array in memory."""

    def __init__(self, num_samples: int, num_bytes: int) -> None:
        self.rows = np.ones((num_samples, num_bytes), np.uint8)

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.rows[index % len(self.rows)])


class Gathers(Stored):
    """The same with whole batches in one go, as a full cache or a bake."""

    def gather(self, indices: Sequence[int], out: Any = None) -> torch.Tensor:
        batch = (out or torch.empty)((len(indices), self.rows.shape[1]), dtype=torch.uint8)
        np.take(self.rows, np.asarray(indices) % len(self.rows), axis=0, out=batch.numpy(), mode="clip")
        return batch


def cases() -> dict[str, Any]:
    """Made when asked for: some take memory."""
    return {
        "waiting": lambda: Case(dataset=Waits(0.005), batch_size=8, step_s=0.008),
        "computing": lambda: Case(dataset=Computes(), batch_size=8, step_s=0.006),
        "tiny": lambda: Case(dataset=Stored(NUM_SAMPLES, 64), batch_size=16, step_s=0.001),
        "huge": lambda: Case(dataset=Stored(64, 4 << 20), batch_size=8, step_s=0.010),
        "heavy-tailed": lambda: Case(dataset=Waits(0.006, spread=3.0), batch_size=8, step_s=0.012),
        "cached": lambda: Case(dataset=Gathers(NUM_SAMPLES, 150_528), batch_size=64, step_s=0.003),
    }


class Endless(Sampler[int]):
    """Indices in order, again and again."""

    def __iter__(self) -> Iterator[int]:
        return (number % NUM_SAMPLES for number in itertools.count())


class Running:
    """One way of feeding, in the middle of an endless epoch."""

    def __init__(self, loader: Any, case: Case, ahead: int, workers: int = 1) -> None:
        self.loader, self.case, self.ahead, self.workers = loader, case, ahead, workers
        self.iterator = iter(loader)

    def run(self, seconds: float) -> float:
        """Batches per second over a turn: over whole rounds of the workers.

        Workers on too few cores end their batches together: begun after such a burst's first batch and ended
        after its last, a turn would count batches that were made before it.
        """
        for _ in range(self.ahead + 1):
            next(self.iterator)
        self.take(self.ahead + 1)
        began, number = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < seconds or number < 8 or number % self.workers:
            self.take(1)
            number += 1
        return number / passed

    def take(self, num_batches: int) -> None:
        """Train on some batches."""
        for _ in range(num_batches):
            next(self.iterator)
            time.sleep(self.case.step_s)


def loaders(case: Case) -> dict[str, Running]:
    """The grid, auto, and what a user has who sets nothing."""
    from hotloop.feed import Loader

    common = {"batch_size": case.batch_size, "sampler": Endless()}
    made = {DEFAULTS: Running(DataLoader(case.dataset, **common), case, 0)}
    made["0 workers"] = Running(Loader(case.dataset, **common), case, 0)
    for workers, factor in itertools.product(WORKERS, PREFETCH):
        loader = Loader(case.dataset, num_workers=workers, prefetch_factor=factor, **common)
        made[f"{workers} x {factor}"] = Running(loader, case, workers * factor + workers, workers)
    made[AUTO] = Running(Loader(case.dataset, num_workers=AUTO, **common), case, 0)
    return made


def settle(auto: Running) -> dict[str, Any]:
    """Leave auto alone until it has found what it wants."""
    began, sizing = time.perf_counter(), auto.loader.sizing
    while time.perf_counter() - began < SETTLE_S:
        auto.take(8)
        if sizing.is_settled:
            break
    auto.ahead = sizing.setting.num_ahead + sizing.setting.num_workers
    auto.workers = max(1, sizing.setting.num_workers)
    return {
        "seconds": time.perf_counter() - began,
        "batches": sizing.num_batches,
        "settled": sizing.is_settled,
    }


def measure(name: str, num_rounds: int, seconds: float) -> dict[str, Any]:
    """Every way over all rounds, in this process."""
    warnings.filterwarnings("ignore", message="This DataLoader will create")
    case = cases()[name]()
    ways = loaders(case)
    settled = settle(ways[AUTO])
    values: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(num_rounds):
        order = list(ways) if turn % 2 == 0 else list(reversed(ways))
        for way in order:
            values[way].append(ways[way].run(seconds))
            print("turn", flush=True)
    sizing = ways[AUTO].loader.sizing
    return {"values": values, "settling": settled, "chosen": str(sizing.setting), "report": str(sizing)}


def in_a_process(name: str, num_rounds: int, seconds: float, tick: Any) -> dict[str, Any]:
    """The same in a process of its own.

    Raises:
        RuntimeError: it failed; its last words.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, __file__, "--measure", name, "--rounds", str(num_rounds)]
        command += ["--seconds", str(seconds), "--out", str(out)]
        with (Path(folder) / "errors").open("w+") as errors:
            child = subprocess.Popen(
                command, env=harness.environment(), stdout=subprocess.PIPE, stderr=errors, text=True
            )
            assert child.stdout is not None
            for _ in child.stdout:
                tick()
            if child.wait():
                errors.seek(0)
                raise RuntimeError(f"{name}: exit {child.returncode}: {errors.read()[-600:]}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def judge(name: str, found: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Target]]:
    """Rows to print, and auto against the best of the grid and the defaults, round by round."""
    values = found["values"]
    grid = [way for way in values if way not in (AUTO, DEFAULTS)]
    best = max(grid, key=lambda way: statistics.median(values[way]))
    rows = [
        {"way": way, **harness.spread(of_way), "ratio": harness.spread(ratios(of_way, values[best]))}
        for way, of_way in values.items()
    ]
    against_best = harness.spread(ratios(values[AUTO], values[best]))
    against_defaults = harness.spread(ratios(values[AUTO], values[DEFAULTS]))
    found["best"] = best
    return rows, [
        harness.at_least(f"auto, {name}: of the best of the grid ({best})", 0.95, against_best),
        harness.at_least(f"auto, {name}: of PyTorch's defaults", 0.98, against_defaults),
    ]


def ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(mine, theirs, strict=True)]


def main() -> int:
    parser = harness.parser(__doc__, num_rounds=3)
    parser.set_defaults(seconds=0.8)
    parser.add_argument("--measure", help="one dataset, in this process")
    args = parser.parse_args()
    if args.measure:
        args.out.write_text(json.dumps(measure(args.measure, args.rounds, args.seconds)))
        return 0
    from rich.console import Console
    from rich.progress import Progress

    names = [name for name in cases() if re.search(args.only, name)]
    result: dict[str, Any] = {"cases": {}}
    targets: list[Target] = []
    num_ways = len(WORKERS) * len(PREFETCH) + 3
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("auto", total=len(names) * num_ways * args.rounds)
        for name in names:
            progress.update(bar, description=name)
            found = in_a_process(name, args.rounds, args.seconds, lambda: progress.advance(bar))
            rows, met = judge(name, found)
            harness.print_rows(f"{name}: auto chose {found['chosen']}", "batches/s", rows, found["best"])
            settling = found["settling"]
            print(f"  settled after {settling['batches']} batches, {settling['seconds']:.1f} s")
            result["cases"][name] = {**found, "rows": rows}
            targets += met
    harness.finish(result, targets, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
