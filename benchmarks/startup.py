"""What hotloop takes before, after and beside a run: start-up, the report of a long run, memory.

    python benchmarks/startup.py [--rounds 7] [--steps 100000] [--memory-steps 1000000] [--out FILE]

Limits: ``--version`` 0.25 s, added start-up 0.3 s, report of 100,000 steps 3 s, 200 bytes a step, memory that
does not grow with the number of steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: Writes the moment its first line runs (the same clock as ours), then imports torch and takes one step.
FIRST_LINE = """
import sys, time
open(sys.argv[1], "w").write(repr(time.clock_gettime(time.CLOCK_MONOTONIC)))
import torch
open(sys.argv[1], "a").write(" " + repr(time.clock_gettime(time.CLOCK_MONOTONIC)))
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""

#: The shortest step there is; says its resident memory after a tenth of the steps and at the end.
MANY_STEPS = """
import sys, os, torch
torch.set_num_threads(1)
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
steps = int(sys.argv[2])
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.ones(1, 2)
marks = {}
for step in range(steps):
    loss = model(x).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (steps // 10, steps - 1):
        marks[step] = resident()
open(sys.argv[1], "w").write(" ".join(str(v) for v in marks.values()))
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=100_000, help="length of the recording that is reported")
    parser.add_argument("--memory-steps", type=int, default=1_000_000, help="0 leaves this part out")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rows = [version(args.rounds), *start_up(folder, args.rounds), *report(folder, args.steps)]
        if args.memory_steps:
            rows.append(memory(folder, args.memory_steps))
    for row in rows:
        mark = "" if row["limit"] is None else f"limit {row['limit']:g} {row['unit']}"
        low, high = row["range"]
        print(f"{row['name']:<46}{row['value']:>10.3f} {row['unit']:<9}({low:.3f} .. {high:.3f})   {mark}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        result = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg(), "rows": rows}
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def row(name: str, unit: str, values: Sequence[float], limit: float | None) -> dict[str, Any]:
    middle, ends = statistics.median(values), [min(values), max(values)]
    return {"name": name, "unit": unit, "value": middle, "range": ends, "limit": limit}


def version(rounds: int) -> dict[str, Any]:
    """``hotloop --version`` from nothing to its exit."""
    values = []
    for _ in range(rounds):
        start = time.perf_counter()
        run([sys.executable, "-m", "hotloop", "--version"])
        values.append(time.perf_counter() - start)
    return row("hotloop --version", "s", values, 0.25)


def start_up(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Until the script's first line, and the whole of ``import torch`` and one step, with and without."""
    script, stamp = folder / "first.py", folder / "stamp"
    script.write_text(FIRST_LINE)
    bare = [sys.executable, str(script), str(stamp)]
    first: dict[bool, list[float]] = {False: [], True: []}
    torch: dict[bool, list[float]] = {False: [], True: []}
    whole: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(rounds):
        for observed in (False, True) if turn % 2 == 0 else (True, False):
            command = [*tool(folder / f"start-{turn}"), *bare] if observed else bare
            start = time.clock_gettime(time.CLOCK_MONOTONIC)
            run(command)
            end = time.clock_gettime(time.CLOCK_MONOTONIC)
            line, imported = map(float, stamp.read_text().split())
            first[observed].append(line - start)
            torch[observed].append(imported - line)
            whole[observed].append(end - start)

    def added(seconds: dict[bool, list[float]]) -> list[float]:
        return [with_ - without for without, with_ in zip(seconds[False], seconds[True], strict=True)]

    return [
        row("added before the script's first line", "s", added(first), 0.3),
        row("added to import torch", "s", added(torch), None),
        row("added in all, reports written", "s", added(whole), None),
    ]


def report(folder: Path, steps: int) -> list[dict[str, Any]]:
    """Record a long loop, then time ``hotloop report`` on it and weigh it."""
    script, stamp, recording = folder / "many.py", folder / "resident", folder / "long"
    script.write_text(MANY_STEPS)
    run([*tool(recording), sys.executable, str(script), str(stamp), str(steps)])
    values = []
    for _ in range(3):
        start = time.perf_counter()
        run([sys.executable, "-m", "hotloop", "report", str(recording)])
        values.append(time.perf_counter() - start)
    size = sum(path.stat().st_size for path in recording.glob("*.sqlite"))
    return [
        row(f"report of {steps:,} steps", "s", values, 3.0),
        row("recording", "B/step", [size / steps], 200.0),
    ]


def memory(folder: Path, steps: int) -> dict[str, Any]:
    """Growth of the training process between a tenth of the steps and the end, observed less bare."""
    script, stamp = folder / "many.py", folder / "resident"
    script.write_text(MANY_STEPS)
    grown = []
    for command in ([], tool(folder / "memory")):
        run([*command, sys.executable, str(script), str(stamp), str(steps)])
        early, late = map(int, stamp.read_text().split())
        grown.append((late - early) / 2**20)
    return row(f"memory grown over {steps:,} steps", "MiB", [grown[1] - grown[0]], 16.0)


def tool(out: Path) -> list[str]:
    return [sys.executable, "-m", "hotloop", "run", "--out", str(out), "--"]


def run(command: Sequence[str]) -> None:
    path = os.pathsep.join(part for part in (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if part)
    env = {**os.environ, "PYTHONPATH": path}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # whoever installed it has it compiled
    done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise SystemExit(f"failed ({done.returncode}): {' '.join(command)}\n{done.stderr[-800:]}")


if __name__ == "__main__":
    sys.exit(main())
