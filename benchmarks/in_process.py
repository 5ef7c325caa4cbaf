"""What the probe costs inside the user's process: a step, a stack sample, the import.

    python benchmarks/in_process.py [--blocks 60] [--out FILE]

One process, short blocks with the probe (its hooks and its timer) switched on and off in turn, so that drift
of the machine meets both; the cost is the median over pairs of blocks of (on - off), its spread the middle
half. Switched off, a wrapper still asks whether it is; that is not in the figure: ``overhead.py`` measures
whole runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: Runs with the probe installed by sitecustomize, as under ``hotloop run``.
BLOCKS = """
import json, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import hotloop.probe.install, hotloop.probe.sampler

blocks, features, hidden, batch, count = map(int, sys.argv[1:])
probe, sampler = hotloop.probe.install.current(), hotloop.probe.sampler._running
torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(4096, features), torch.randint(0, 10, (4096,)))
loader = DataLoader(data, batch_size=batch, shuffle=True, drop_last=True)
model = nn.Sequential(
    nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
criterion = nn.CrossEntropyLoss()

def step(x, y):
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

batches = iter(())

def block():
    global batches
    spent = 0.0
    for turn in range(count + 5):
        item = next(batches, None)
        if item is None:
            batches = iter(loader)
            item = next(batches)
        step(*item)
        if turn == 4:
            start = time.perf_counter()
    return (time.perf_counter() - start) / count

for _ in range(10):
    block()
pairs = []
switches = list(probe.hooks._switches.values())
for _ in range(blocks):
    with_probe = block()
    for switch in switches:
        switch.off = True
    sampler._timer.schedule(0, 0)
    without = block()
    for switch in switches:
        switch.off = False
    sampler._schedule(time.perf_counter_ns(), sampler._interval)
    pairs.append((with_probe, without))
print(json.dumps(pairs))
"""

IMPORT = """
import time
import torch
start = time.thread_time()
import hotloop.probe.install
print(time.thread_time() - start)
"""

#: name -> features, hidden, batch, steps a block.
LOOPS = {"small": (32, 32, 16, 60), "medium": (256, 512, 256, 12)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=60, help="pairs of blocks for each loop")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    table: dict[str, Any] = {"import_cpu_ms": imported_ms()}
    print(f"import of the in-process part after torch: {table['import_cpu_ms']:.1f} ms of CPU")
    for name, sizes in LOOPS.items():
        row = table[name] = paired(args.blocks, sizes)
        low, high = row["middle_half_us"]
        print(
            f"{name:<7} step {row['without_us']:8.1f} us  probe +{row['median_us']:.1f} us "
            f"(middle half {low:.1f} .. {high:.1f})",
            flush=True,
        )
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(table, indent=1) + "\n")
    return 0


def paired(blocks: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Pairs of blocks in one process."""
    with tempfile.TemporaryDirectory() as folder:
        pairs = json.loads(python(BLOCKS, *map(str, (blocks, *sizes)), raw=folder))
    differences = [(on - off) * 1e6 for on, off in pairs]
    quarters = statistics.quantiles(differences, n=4)
    return {
        "without_us": statistics.median(off for _, off in pairs) * 1e6,
        "median_us": statistics.median(differences),
        "middle_half_us": [quarters[0], quarters[2]],
    }


def imported_ms() -> float:
    """CPU time of importing the part that lives in the user's process, torch being there. Median of 7."""
    return statistics.median(float(python(IMPORT)) for _ in range(7)) * 1e3


def python(code: str, *arguments: str, raw: str = "") -> str:
    """Output of a script, with the probe installed where ``raw`` names a folder."""
    paths = [str(ROOT / "src"), *([str(ROOT / "src/hotloop/bootstrap/inject")] if raw else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(reversed(paths))}
    if raw:
        env |= {"HOTLOOP_RAW": raw, "HOTLOOP_SRC": str(ROOT / "src")}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
