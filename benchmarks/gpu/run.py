"""The GPU part of the benchmarks: planted cases on real kernels, the overhead of a step, and feeding.

    PYTHONPATH=src python benchmarks/gpu/run.py [--parts cases overhead feed] [--out DIR]

Under ten minutes on one GPU. Writes ``gpu.json`` and ``gpu.md`` into --out, and ``gpu-feed.json`` and
``gpu-feed.md`` (see feed.py); the machine's torch is used as it is. Without CUDA it says so and exits 0.
The five systems are ``systems.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "accuracy")]

import overhead  # noqa: E402
import run as accuracy  # noqa: E402
from case import load  # noqa: E402

#: No new case starts after this many seconds, so that the whole stays under ten minutes.
BUDGET_S = 300.0
PARTS = ("cases", "overhead", "feed")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), help="folder of the results")
    parser.add_argument("--only", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument(
        "--keep", type=Path, default=Path("/tmp/hotloop-gpu"), help="run folders are kept here"
    )
    args = parser.parse_args()
    device = device_name()
    if device is None:
        print("no CUDA device: the GPU part has not been run on this machine")
        return 0
    start = time.perf_counter()
    rows = []
    cases = load(HERE.parent / "accuracy" / "cases_gpu", args.only) if "cases" in args.parts else []
    for case in cases:
        if time.perf_counter() - start > BUDGET_S:
            print(f"left out for lack of time: {case.name}")
            continue
        args.keep.mkdir(parents=True, exist_ok=True)
        row = accuracy.try_case(case, args.keep, False, 120.0)
        print(accuracy.line(row), flush=True)
        rows.append(row)
    sizes = ("small", "medium") if "overhead" in args.parts else ()
    costs = [row for size in sizes for row in overhead.compare(size, 600, 3, None, "cuda")]
    overhead.print_table(costs)
    result = {"device": device, "summary": accuracy.summary(rows), "cases": rows, "overhead": costs}
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "gpu.json").write_text(json.dumps(result, indent=1) + "\n")
    (args.out / "gpu.md").write_text(as_markdown(result))
    print(f"written: {args.out / 'gpu.json'}")
    return feeding(args.out) if "feed" in args.parts else 0


def feeding(out: Path) -> int:
    """feed.py in a process of its own; its exit status."""
    print("feeding the device ...", flush=True)
    command = [sys.executable, str(HERE / "feed.py"), "--out", str(out / "gpu-feed.json")]
    return subprocess.run(command, stdin=subprocess.DEVNULL).returncode


def device_name() -> str | None:
    """The GPU's name and torch's version, asked of a process of its own."""
    ask = "import torch as t; t.cuda.is_available() and print(t.cuda.get_device_name(0), t.__version__)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True)
    return done.stdout.strip() or None


def as_markdown(result: dict[str, Any]) -> str:
    """The results as a table for benchmarks/results."""
    lines = [
        f"# On a GPU\n\n{result['device']}\n",
        "| case | bottleneck | first finding | right |",
        "|---|---|---|---|",
    ]
    for row in result["cases"]:
        right = "yes" if not row["failures"] else "; ".join(row["failures"])
        lines.append(f"| {row['case']} | {row['bottleneck']} | {row['first']} | {right} |")
    lines += ["", "| loop | without | with | overhead |", "|---|---|---|---|"]
    for row in result["overhead"]:
        numbers = f"{row['without_ms']:.3f} ms | {row['with_ms']:.3f} ms | {row['overhead_ms']:+.4f} ms"
        lines.append(f"| {row['size']} | {numbers} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
