"""What the probe costs inside the user's process: a step, with its stack samples, and the import.

    python benchmarks/in_process.py [--blocks 200] [--loops medium] [--out FILE]

One process, short blocks with the probe and without it in turn: without it the patched names hold what torch
put there, and the timer is stopped. Drift of the machine, and where memory happens to lie (which makes two
processes of the same loop differ by 2 %), meet both. The cost is the median over pairs of blocks of on - off,
its interval a bootstrap over pairs. What the launcher does beside the run is not in it: ``overhead.py``
measures whole runs.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

#: Runs with the probe installed by sitecustomize, as under ``hotloop run``.
BLOCKS = """
import gc, json, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import hotloop.hooks.registry, hotloop.probe.install, hotloop.probe.sampler

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
patched, missing = list(probe.hooks._patched), hotloop.hooks.registry._MISSING
optimizers = sys.modules["torch.optim.optimizer"]
called = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks, gc.callbacks
ours = [one.copy() for one in called]

def without_probe():
    sampler._timer.schedule(0, 0)
    for one in called:
        one.clear()
    for owner, name, own, _ in reversed(patched):
        delattr(owner, name) if own is missing else setattr(owner, name, own)
    try:
        return block()
    finally:
        for owner, name, _, wrapper in patched:
            setattr(owner, name, wrapper)
        for one, kept in zip(called, ours):
            one.update(kept) if isinstance(kept, dict) else one.extend(kept)
        sampler._schedule(time.perf_counter_ns(), sampler._interval)

pairs = []
for turn in range(blocks):
    # Every other pair runs backwards: what drifts evenly cancels.
    order = (block, without_probe) if turn % 2 == 0 else (without_probe, block)
    spent = [way() for way in order]
    pairs.append(spent if turn % 2 == 0 else spent[::-1])
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
    parser.add_argument("--blocks", type=int, default=200, help="pairs of blocks for each loop")
    parser.add_argument("--loops", nargs="*", default=list(LOOPS), choices=list(LOOPS))
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    table: dict[str, Any] = {"import_cpu_ms": imported_ms()}
    print(f"import of the in-process part after torch: {table['import_cpu_ms']:.1f} ms of CPU")
    for name in args.loops:
        row = table[name] = paired(args.blocks, LOOPS[name])
        low, high = row["ci95_us"]
        step = row["without_us"]
        print(
            f"{name:<7} step {step:8.1f} us  probe {row['median_us']:+.1f} us ({low:+.1f} .. {high:+.1f}), "
            f"{row['median_us'] / step:.2%} ({low / step:.2%} .. {high / step:.2%})",
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
        "ci95_us": bootstrap(differences),
    }


def bootstrap(values: Sequence[float], draws: int = 4000) -> list[float]:
    """95 % interval of the median."""
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(draws))
    return [medians[int(0.025 * draws)], medians[int(0.975 * draws)]]


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
