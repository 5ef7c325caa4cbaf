"""What observing a step costs: the same loop with and without, in separate processes, taking turns.

    python benchmarks/overhead.py [--rounds 7] [--peers DIR | --no-peers] [--out FILE]

Each round runs every way once, so that drift of the machine meets all of them; the overhead is the median
over rounds of (with - without) of the same round, its interval a bootstrap over rounds. Limits: 0.05 ms on a
step of 0.5 ms, 1 % on steps of 5 ms or more; where the interval holds the limit it is not told. Two processes
of the same loop differ by 2 %: ``in_process.py`` tells the probe's own cost ten times as sharply. Other
tools run in an environment of their own, against their own baseline: TraceML, gpuprof and datapath-doctor
with the lines that they ask for, `alloc run --full` with none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import in_process
import peer_environment

ROOT = Path(__file__).parents[1]
LOOP = Path(__file__).parent / "loop.py"
LIMIT_MS, LIMIT_RATIO = 0.05, 0.01
MEASURES = ("mean_ms", "trimmed_ms", "median_ms")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--steps", type=int, default=4000, help="steps of the small loop; larger ones take fewer"
    )
    parser.add_argument(
        "--sizes", nargs="*", default=["small", "medium"], choices=["small", "medium", "large"]
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peers", type=Path, default=ROOT / ".bench" / "peers", help="their environment")
    parser.add_argument("--no-peers", action="store_true", help="hotloop alone")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    theirs = None if args.no_peers else peer_python(args.peers)
    table = []
    for size in args.sizes:
        steps = {"small": args.steps, "medium": args.steps // 8, "large": args.steps // 30}[size]
        table.extend(compare(size, max(20, steps), args.rounds, theirs, args.device))
    print_table(table)
    if args.out:
        machine = {"cores": len(os.sched_getaffinity(0)), "cpu": platform.processor() or platform.machine()}
        result = {
            "machine": machine,
            "rounds": args.rounds,
            "load": os.getloadavg(),
            "device": args.device,
            "rows": table,
        }
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def print_table(table: Sequence[Mapping[str, Any]]) -> None:
    print(f"{'loop':<8}{'tool':<9}{'without':>9}{'with':>9}{'overhead':>10}   {'95 %':<18}{'share':>6}")
    for row in table:
        low, high = row["overhead_ci95_ms"]
        spread = f"{low:+.4f} .. {high:+.4f}"
        print(
            f"{row['size']:<8}{row['tool']:<9}{row['without_ms']:>9.3f}{row['with_ms']:>9.3f}"
            f"{row['overhead_ms']:>+10.4f}   {spread:<18}{row['overhead_ratio']:>6.1%}   {row['says']}"
        )


def peer_python(folder: Path) -> str | None:
    """The peers' interpreter, or None (said once) where it cannot be made."""
    try:
        return str(peer_environment.environment(folder))
    except (OSError, subprocess.SubprocessError) as error:
        print(f"without the peers: {error}", file=sys.stderr)
        return None


def compare(size: str, steps: int, rounds: int, theirs: str | None, device: str) -> list[dict[str, Any]]:
    """Run every way in turns and compare each with the baseline of its environment."""
    ours = sys.executable
    loop = [str(LOOP), "--size", size, "--steps", str(steps), "--device", device]
    ways: dict[str, tuple[str, list[str]]] = {
        "bare": ("", [ours, *loop]),
        "hotloop": ("bare", [ours, "-m", "hotloop", "run", "--out", "RUN", "--", ours, *loop]),
        "evidence": (
            "bare",
            [ours, "-m", "hotloop", "run", "--evidence", "--out", "RUN", "--", ours, *loop],
        ),
    }
    if theirs:
        traceml = str(Path(theirs).parent / "traceml")
        ways["bare (peers)"] = ("", [theirs, *loop])
        ways["traceml"] = (
            "bare (peers)",
            [traceml, "run", loop[0], "--args", *loop[1:], "--tool", "traceml"],
        )
        for tool in ("gpuprof", "datapath"):
            ways[tool] = ("bare (peers)", [theirs, *loop, "--tool", tool])
        alloc = [str(Path(theirs).parent / "alloc"), "run", "--full", "--no-config"]
        ways["alloc"] = ("bare (peers)", [*alloc, "--timeout", "600", "--", theirs, *loop])
    seen: dict[str, list[Mapping[str, float]]] = {name: [] for name in ways}
    for turn in range(rounds):
        # Every other round runs backwards: what comes first in a round is not always the same.
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            found = once(ways[name][1])
            if found:
                seen[name].append(found)
    return [summarise(size, name, base, seen) for name, (base, _) in ways.items() if base]


def once(command: Sequence[str]) -> Mapping[str, float] | None:
    """One process; None when it did not finish."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        filled = [str(Path(folder) / "run") if part == "RUN" else part for part in command]
        path = os.pathsep.join(part for part in (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if part)
        env = {**os.environ, "PYTHONPATH": path, "LOOP_OUT": str(result)}
        done = subprocess.run(
            [*filled, "--out", str(result)],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if not result.exists():
            print(f"failed: {' '.join(filled)}\n{done.stderr[-800:]}", file=sys.stderr)
            return None
        found: Mapping[str, float] = json.loads(result.read_text())
        return found


def summarise(
    size: str, tool: str, base: str, seen: Mapping[str, Sequence[Mapping[str, float]]]
) -> dict[str, Any]:
    """Paired differences of one tool against the baseline of the same rounds."""
    pairs = list(zip(seen[base], seen[tool], strict=False))
    if not pairs:
        numbers = ("without_ms", "with_ms", "overhead_ms", "overhead_ratio")
        nothing = dict.fromkeys(numbers, float("nan"))
        unknown = {"overhead_iqr_ms": [0.0, 0.0], "overhead_ci95_ms": [0.0, 0.0]}
        return {"size": size, "tool": tool, "says": "did not run", **unknown, **nothing}
    row: dict[str, Any] = {"size": size, "tool": tool, "pairs": len(pairs)}
    for measure in MEASURES:
        differences = sorted(after[measure] - before[measure] for before, after in pairs)
        row[f"overhead_{measure}"] = {"median": statistics.median(differences), "all": differences}
    differences = row["overhead_trimmed_ms"]["all"]
    quartiles = statistics.quantiles(differences, n=4) if len(differences) > 1 else [differences[0]] * 3
    without = statistics.median(before["trimmed_ms"] for before, _ in pairs)
    overhead = statistics.median(differences)
    low, high = in_process.bootstrap([differences])
    limit = LIMIT_MS if without < 5 else LIMIT_RATIO * without
    says = "within the limit" if high <= limit else "over the limit" if low > limit else "not told"
    row.update(
        without_ms=without,
        with_ms=statistics.median(after["trimmed_ms"] for _, after in pairs),
        overhead_ms=overhead,
        overhead_iqr_ms=[quartiles[0], quartiles[2]],
        overhead_ci95_ms=[low, high],
        overhead_ratio=overhead / without,
        says=says,
    )
    return row


if __name__ == "__main__":
    sys.exit(main())
