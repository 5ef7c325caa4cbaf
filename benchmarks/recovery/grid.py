"""What tuning costs beside an exhaustive grid, on the five datasets of FIELDNOTES 3.5.

    python benchmarks/recovery/grid.py [--data sleep,cpu] [--repeats 3] [--out FILE [--resume]]

The grid is workers x prefetch x workers that stay or not, of which ``tune`` searches more. Every cell is
``--repeats`` launches of ``loading.py``; so is every trial of ``tune``. A row says how fast what tune took is
beside the fastest cell, and how long both took. ``--out`` is the file of ``run.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from results import Results
from run import HERE, HOTLOOP, call, launch

DATA = ("sleep", "cpu", "tiny", "large", "heavy")
CELLS = [(0, 2, True), *product((1, 2, 3, 4), (1, 2, 3, 4), (True, False))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--repeats", type=int, default=3, help="launches of a cell")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--out", type=Path, help="the results, as JSON; goes on where it exists")
    parser.add_argument("--resume", action="store_true", help="skip rows of other versions too")
    args = parser.parse_args()
    results = Results(args.out)
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.data.split(","):
            if results.has("grid", name, any_version=args.resume):
                continue
            row = one(name, Path(scratch) / name, args.repeats, args.steps, args.budget)
            results.put("grid", name, row)
            print(json.dumps({k: v for k, v in row.items() if k != "cells"}), flush=True)
    return 0


def one(name: str, folder: Path, repeats: int, steps: int, budget: str) -> dict[str, Any]:
    """One dataset: the grid, the tuning, and the best of both side by side."""
    folder.mkdir()
    row: dict[str, Any] = {"data": name, "failures": []}

    def command(workers: int, prefetch: int, stay: bool) -> list[str]:
        words = [str(HERE / "loading.py"), name, str(workers), str(prefetch), "--steps", str(steps)]
        return [sys.executable, *words, *(() if stay else ("--new-workers",))]

    begun_s = time.monotonic()
    cells = {}
    for turn in range(repeats):
        for cell in CELLS if turn % 2 == 0 else CELLS[::-1]:
            key = f"w{cell[0]}p{cell[1]}" + "new" * (not cell[2])
            found = launch(command(*cell), (), folder / f"{key}-{turn}", row)
            cells.setdefault(key, []).append(found or 0.0)
    row["cells"] = {key: median(values) for key, values in cells.items()}
    row["grid_seconds"] = time.monotonic() - begun_s
    row["grid_best"] = max(row["cells"], key=lambda key: row["cells"][key])
    begun_s = time.monotonic()
    out = folder / "tune"
    call([*HOTLOOP, "tune", "--budget", budget, "--out", str(out), "--", *command(*CELLS[0])], 1800)
    row["tune_seconds"] = time.monotonic() - begun_s
    best = json.loads((out / "tune.json").read_text())["best"]
    row["remedies"] = best["remedies"]
    gain = best["gain"]["ratio"] if best["gain"] else 1.0
    row["tuned_to_best"] = row["cells"]["w0p2"] * gain / row["cells"][row["grid_best"]]
    row["cost_ratio"] = row["tune_seconds"] / row["grid_seconds"]
    return row


if __name__ == "__main__":
    sys.exit(main())
