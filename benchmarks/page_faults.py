"""What it gives on a CPU that a step's memory stays with the process: convolutions, by batch and threads.

    python benchmarks/page_faults.py [--out FILE]

Each is a process of its own, as torch runs it and with ``keep-freed-memory``, in turns; medians of five.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
BATCHES = (1, 4, 16, 64)
TURNS = 5
#: Fewer say nothing of what one costs.
LEAST_FAULTS = 500
SCRIPT = """
import resource, sys, time
from statistics import median
import torch
from torch.nn import functional as F
from hotloop.feed.memory import STEP_BYTES, keep_freed_memory

keeps, batch, threads = sys.argv[1] == "keeps", int(sys.argv[2]), int(sys.argv[3])
if keeps:
    keep_freed_memory(STEP_BYTES)
torch.set_num_threads(threads)
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
    torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(), torch.nn.Linear(16, 10),
)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
images, labels, times = torch.randn(batch, 3, 64, 64), torch.randint(10, (batch,)), []
steps = max(10, 200 // batch)
for step in range(5 + steps):
    if step == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    begun = time.perf_counter()
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    times.append(time.perf_counter() - begun)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(median(times[5:]), faults / steps)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="the results, as JSON")
    args = parser.parse_args()
    rows = []
    for threads in (1, 2):
        for batch in BATCHES:
            seen: dict[str, list[tuple[float, float]]] = {"found": [], "keeps": []}
            for _ in range(TURNS):
                for form, taken in seen.items():
                    taken.append(step(form, batch, threads))
            row = told(seen, batch, threads)
            rows.append(row)
            print(
                f"batch {batch:3}  {threads} threads  {row['found_ms']:7.2f} -> {row['kept_ms']:7.2f} ms  "
                f"{row['found_faults']:7.0f} -> {row['kept_faults']:5.0f} faults  "
                + (f"{row['us_per_fault']:.1f} µs each" if row["us_per_fault"] else ""),
                flush=True,
            )
    if args.out:
        document = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "rows": rows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")


def step(form: str, batch: int, threads: int) -> tuple[float, float]:
    """Seconds and page faults of a step."""
    command = [sys.executable, "-c", SCRIPT, form, str(batch), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT / "src")
    seconds, faults = map(float, done.stdout.split())
    return seconds, faults


def told(seen: dict[str, list[tuple[float, float]]], batch: int, threads: int) -> dict[str, Any]:
    found_s, found = (median(column) for column in zip(*seen["found"], strict=True))
    kept_s, kept = (median(column) for column in zip(*seen["keeps"], strict=True))
    each_us = 1e6 * (found_s - kept_s) / (found - kept) if found - kept >= LEAST_FAULTS else None
    return {
        "batch": batch, "threads": threads, "found_ms": 1e3 * found_s, "kept_ms": 1e3 * kept_s,
        "found_faults": found, "kept_faults": kept, "us_per_fault": each_us,
    }  # fmt: skip


if __name__ == "__main__":
    main()
