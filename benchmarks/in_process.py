"""What the probe costs inside the user's process: a step, with its stack samples, and the import.

    python benchmarks/in_process.py [--processes 10] [--blocks 20] [--loops medium] [--parts] [--out FILE]

Short blocks with the probe and without it in turn in one process: without it the patched names hold what
torch put there, and the timer is stopped. Drift of the machine, and where memory happens to lie (which makes
two processes of the same loop differ by 2 %), meet both. What the probe costs depends on where memory lies as
well, so there are several processes. The cost is the median over all pairs of blocks of on - off, its
interval a bootstrap over processes and their pairs. Beside the clock stands the CPU time of the training
thread, of other threads and of DataLoader workers, which other programs on the machine disturb far less;
``--parts`` gives it for each part of the probe left in alone. What the launcher does beside the run is not in
it: ``overhead.py`` measures whole runs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

IMPORT = """
import time
import torch
start = time.thread_time()
import hotloop.probe.install
print(time.thread_time() - start)
"""

LOOP = Path(__file__).with_name("in_process_loop.py")
#: name -> features, hidden, batch, steps a block, workers (then a block is an epoch with workers of its own).
LOOPS = {"small": (32, 32, 16, 60, 0), "medium": (256, 512, 256, 12, 0), "workers": (256, 512, 256, 16, 2)}
#: Of a step: microseconds, the last three counts (``in_process_loop.used``).
COLUMNS = ("wall", "own", "next", "step", "threads", "workers", "faults", "waits", "preempted")
#: What is left in alone with ``--parts``; the names are ``in_process_loop.py``'s.
PARTS = ("next", "fetch", "modules", "backward", "zero_grad", "optimizer", "collections", "samples", "epochs")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=10, help="for each loop")
    parser.add_argument("--blocks", type=int, default=20, help="pairs of blocks for each process")
    parser.add_argument("--steps", type=int, help="of a block (default: by loop)")
    parser.add_argument("--loops", nargs="*", default=list(LOOPS), choices=list(LOOPS))
    parser.add_argument("--parts", action="store_true", help="what each part of the probe costs alone")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    table: dict[str, Any] = {"import_cpu_ms": imported_ms()}
    print(f"import of the in-process part after torch: {table['import_cpu_ms']:.1f} ms of CPU")
    arms = ["off", *(PARTS if args.parts else ()), "on"]
    for name in args.loops:
        sizes = (*LOOPS[name][:3], args.steps or LOOPS[name][3], LOOPS[name][4])
        rounds = [measured(args.blocks, sizes, arms) for _ in range(args.processes)]
        row = table[name] = {arm: compared(rounds, arm) for arm in arms[1:]}
        print_loop(name, rounds, row)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(table, indent=1) + "\n")
    return 0


#: For each process its rounds: arm -> what a step took, by ``COLUMNS``.
Processes = Sequence[Sequence[Mapping[str, Sequence[float]]]]


def measured(blocks: int, sizes: Sequence[int], arms: Sequence[str]) -> list[dict[str, list[float]]]:
    """Rounds of blocks in one process: for each arm what a step took, by ``COLUMNS``."""
    with tempfile.TemporaryDirectory() as folder:
        lines = python(str(LOOP), *map(str, (blocks, *sizes)), *arms, raw=folder).splitlines()
    return [json.loads(line) for line in lines]


def compared(rounds: Processes, arm: str) -> dict[str, Any]:
    """What an arm took beyond ``off`` in the same round: medians, with intervals for time."""
    found: dict[str, Any] = {}
    for at, column in enumerate(COLUMNS):
        differences = [[one[arm][at] - one["off"][at] for one in process] for process in rounds]
        found[column] = statistics.median(chain(*differences))
        if column in ("wall", "own"):
            found[f"{column}_of_processes"] = [statistics.median(one) for one in differences]
            found[f"{column}_ci95"] = bootstrap(differences)
            found[f"{column}_without"] = statistics.median(one["off"][at] for one in chain(*rounds))
    return found


def print_loop(name: str, rounds: Processes, row: Mapping[str, Mapping[str, Any]]) -> None:
    print(f"{name:<12}" + "".join(f"{column:>10}" for column in COLUMNS))
    bare = [statistics.median(one["off"][at] for one in chain(*rounds)) for at in range(len(COLUMNS))]
    print(f"{'without':<12}" + "".join(f"{value:>10.1f}" for value in bare))
    for arm, found in row.items():
        print(f"{arm:<12}" + "".join(f"{found[column]:>+10.1f}" for column in COLUMNS))
    for column, what in (("wall", "by the clock"), ("own", "CPU of the training thread")):
        found = row["on"]
        low, high, step = *found[f"{column}_ci95"], found[f"{column}_without"]
        print(
            f"  {what}: {found[column]:+.1f} us ({low:+.1f} .. {high:+.1f}) of {step:.1f}, "
            f"{found[column] / step:.2%} ({low / step:.2%} .. {high / step:.2%})",
            flush=True,
        )


def bootstrap(processes: Sequence[Sequence[float]], draws: int = 4000) -> list[float]:
    """95 % interval of the median: processes drawn again, and then their values."""
    chance = random.Random(0)
    drawn = (
        [chance.choices(one, k=len(one)) for one in chance.choices(processes, k=len(processes))]
        for _ in range(draws)
    )
    medians = sorted(statistics.median(chain(*one)) for one in drawn)
    return [medians[int(0.025 * draws)], medians[int(0.975 * draws)]]


def imported_ms() -> float:
    """CPU time of importing the part that lives in the user's process, torch being there. Median of 7."""
    return statistics.median(float(python("-c", IMPORT)) for _ in range(7)) * 1e3


def python(*arguments: str, raw: str = "") -> str:
    """Output of a script, with the probe installed where ``raw`` names a folder."""
    paths = [str(ROOT / "src"), *([str(ROOT / "src/hotloop/bootstrap/inject")] if raw else [])]
    paths = [*reversed(paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if raw:
        env |= {"HOTLOOP_RAW": raw, "HOTLOOP_SRC": str(ROOT / "src")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
