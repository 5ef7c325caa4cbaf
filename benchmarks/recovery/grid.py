"""What tuning costs beside an exhaustive grid, on the five datasets of FIELDNOTES 3.5.

    python benchmarks/recovery/grid.py [--data sleep,cpu] [--repeats 3] [--out FILE [--resume | --again]]

The grid is workers x prefetch x workers that stay or not, of which ``tune`` searches more. Every cell is
``--repeats`` launches of ``loading.py``; so is every trial of ``tune``. A row says how fast what tune took is
beside the fastest cell, and how long both took. ``--out`` is the file of ``run.py``; ``--again`` tunes anew
beside the cells that it has.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
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
    parser.add_argument("--again", action="store_true", help="tune anew beside the cells in --out")
    args = parser.parse_args()
    results = Results(args.out)
    with tempfile.TemporaryDirectory() as scratch:
        for name in args.data.split(","):
            known = results.sections.get("grid", {}).get(name)
            if not args.again and results.has("grid", name, any_version=args.resume):
                continue
            folder = Path(scratch) / name
            folder.mkdir()
            row = known if args.again and known else cells(name, folder, args.repeats, args.steps)
            row = {**row, **tuned(row, folder, args.steps, args.budget)}
            results.put("grid", name, row)
            told = {key: value for key, value in row.items() if key not in ("cells", "waiting")}
            print(json.dumps(told), flush=True)
    return 0


def cells(name: str, folder: Path, repeats: int, steps: int) -> dict[str, Any]:
    """The grid of one dataset."""
    row: dict[str, Any] = {"data": name, "failures": [], "repeats": repeats}
    begun_s = time.monotonic()
    found: dict[str, list[float]] = {}
    for turn in range(repeats):
        for cell in CELLS if turn % 2 == 0 else CELLS[::-1]:
            key = f"w{cell[0]}p{cell[1]}" + "new" * (not cell[2])
            rate = launch(command(name, steps, *cell), (), folder / f"{key}-{turn}", row)
            found.setdefault(key, []).append(rate or 0.0)
    row["cells"] = {key: median(values) for key, values in found.items()}
    row["grid_seconds"] = time.monotonic() - begun_s
    row["grid_best"] = max(row["cells"], key=lambda key: row["cells"][key])
    return row


def tuned(row: Mapping[str, Any], folder: Path, steps: int, budget: str) -> dict[str, Any]:
    """What ``tune`` makes of the first cell, beside the best one."""
    begun_s = time.monotonic()
    out = folder / "tune"
    told = command(row["data"], steps, *CELLS[0])
    call([*HOTLOOP, "tune", "--budget", budget, "--out", str(out), "--", *told], 1800)
    seconds = time.monotonic() - begun_s
    best = json.loads((out / "tune.json").read_text())["best"]
    gain = best["gain"]["ratio"] if best["gain"] else 1.0
    return {
        "budget": budget,
        "tune_seconds": seconds,
        "remedies": best["remedies"],
        "tuned_to_best": row["cells"]["w0p2"] * gain / row["cells"][row["grid_best"]],
        "cost_ratio": seconds / row["grid_seconds"],
    }


def command(name: str, steps: int, workers: int, prefetch: int, stay: bool) -> list[str]:
    """One cell."""
    words = [str(HERE / "loading.py"), name, str(workers), str(prefetch), "--steps", str(steps)]
    return [sys.executable, *words, *(() if stay else ("--new-workers",))]


if __name__ == "__main__":
    sys.exit(main())
