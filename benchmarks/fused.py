"""What one kernel saves of an update on a CPU, by optimizer, number of tensors, their size and threads.

    python benchmarks/fused.py [--out FILE]

Both forms step in turns; the median of seven.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {}),
    "AdamW": (torch.optim.AdamW, {}),
    "Adagrad": (torch.optim.Adagrad, {}),
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "SGD, momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
}
SIZES = ((4, 100), (4, 100_000), (60, 1_000), (60, 100_000), (4, 5_000_000))
TURNS = 7


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="the results, as JSON")
    args = parser.parse_args()
    rows = []
    for name in OPTIMIZERS:
        for tensors, numbers in SIZES:
            for threads in (1, 2):
                torch.set_num_threads(threads)
                loop_s, fused_s = both(name, tensors, numbers)
                row = {"optimizer": name, "tensors": tensors, "numbers": numbers, "threads": threads}
                rows.append({**row, "loop_ms": 1e3 * loop_s, "fused_ms": 1e3 * fused_s})
                print(
                    f"{name:14} {tensors:3} x {numbers:9,}  {threads} threads  {1e3 * loop_s:8.3f} -> "
                    f"{1e3 * fused_s:8.3f} ms  saves {1 - fused_s / loop_s:4.0%}",
                    flush=True,
                )
    if args.out:
        document = {"torch": torch.__version__, "date": time.strftime("%Y-%m-%d"), "rows": rows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")


def both(name: str, tensors: int, numbers: int) -> tuple[float, float]:
    """Seconds of an update as torch makes it, and fused."""
    optimizers = [made(name, tensors, numbers, fused) for fused in (None, True)]
    steps = max(3, int(0.05 / (tensors * (2e-5 + 2e-9 * numbers))))
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 1):
        for taken, optimizer in zip(times, optimizers, strict=True):
            begun = time.perf_counter()
            for _ in range(steps):
                optimizer.step()
            if turn:
                taken.append((time.perf_counter() - begun) / steps)
    return median(times[0]), median(times[1])


def made(name: str, tensors: int, numbers: int, fused: bool | None) -> torch.optim.Optimizer:
    cls, settings = OPTIMIZERS[name]
    parameters = [torch.nn.Parameter(torch.randn(numbers)) for _ in range(tensors)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return cls(parameters, fused=fused, **settings)  # type: ignore[call-arg]


if __name__ == "__main__":
    main()
