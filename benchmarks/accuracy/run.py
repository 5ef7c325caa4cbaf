"""Run every planted case through the command line and hold the report against the truth in its header.

    python benchmarks/accuracy/run.py [--only REGEX] [--keep DIR] [--again] [--busy N] [--out FILE]

Prints a table; the JSON goes to --out. With ``--keep`` the recordings stay, ``--again`` diagnoses those
instead of running. ``--busy 2`` computes beside every case, as others do on a shared machine. About ten
minutes on two quiet cores. Exit 0 always: it reports, tests check.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from case import HERE, Case, judge, judge_nothing, load

SRC = HERE.parents[1] / "src"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="only cases whose name matches this regular expression")
    parser.add_argument("--cases", type=Path, default=HERE / "cases", help="folder of cases")
    parser.add_argument(
        "--jobs", type=int, default=1, help="cases at a time; more than one disturbs the timings"
    )
    parser.add_argument("--keep", type=Path, help="keep the run folders here")
    parser.add_argument("--again", action="store_true", help="diagnose the recordings in --keep again")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside every case")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per case")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    if args.again and not args.keep:
        parser.error("--again needs --keep DIR, the folder with the recordings")
    cases = load(args.cases, args.only)
    if args.again:
        cases = [case for case in cases if (args.keep / case.name / "run.json").exists()]
    rows = []
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(args.busy)]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(args.jobs) as pool:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for row in pool.map(lambda case: try_case(case, folder, args.again, args.timeout), cases):
            print(line(row), flush=True)
            rows.append(row)
    for process in beside:
        process.kill()
    result = {
        "summary": summary(rows),
        "cases": rows,
        "cores": len(os.sched_getaffinity(0)),
        "busy_beside": args.busy,
    }
    print()
    for name, value in result["summary"].items():
        print(f"{name:>22}  {value}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def try_case(case: Case, folder: Path, again: bool, timeout_s: float) -> dict[str, Any]:
    """One case: run or re-read, judged. A failure of any kind is a row that says so."""
    run = folder / case.name
    start, load_before = time.perf_counter(), os.getloadavg()[0]
    row: dict[str, Any] = {"case": case.name, "healthy": case.healthy, "truth": list(case.truth)}
    try:
        report = read_again(run, timeout_s) if again else observe(case, run, timeout_s)
        row.update(dataclasses.asdict(judge(case, report)))
        row["wall_s"] = report["wall_s"]
        row["num_steps"] = report["num_steps"]
        row["verdict"] = report.get("verdict", "")
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
        row.update(dataclasses.asdict(judge_nothing(f"{error}"[:600])))
    row["seconds"] = time.perf_counter() - start
    row["load"] = load_before
    return row


def observe(case: Case, run: Path, timeout_s: float) -> dict[str, Any]:
    """Run the case under ``hotloop run`` and return its report."""
    if run.exists():
        subprocess.run(["rm", "-rf", str(run)], check=True)
    tool = [sys.executable, "-m", "hotloop", "run", "--out", str(run), "--json", "--", *case.command()]
    done = call(case.pinned(tool), timeout_s)
    if not (run / "report.json").exists():
        raise ValueError(f"no report, exit {done.returncode}: {done.stderr[-500:]}")
    report = json.loads((run / "report.json").read_text())
    if report["exit_code"] != 0:
        raise ValueError(f"the case itself failed, exit {report['exit_code']}: {done.stderr[-500:]}")
    return dict(report)


def read_again(run: Path, timeout_s: float) -> dict[str, Any]:
    """Diagnose a kept recording again."""
    done = call([sys.executable, "-m", "hotloop", "report", str(run), "--json", "-"], timeout_s)
    if done.returncode != 0:
        raise ValueError(f"report failed, exit {done.returncode}: {done.stderr[-500:]}")
    return dict(json.loads(done.stdout))


def call(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(part for part in (str(SRC), os.environ.get("PYTHONPATH", "")) if part)
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, errors="replace", timeout=timeout_s, cwd="/tmp",
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    mark = "ok  " if not row["failures"] else "FAIL"
    head = f"{mark} {row['case']:<34} {row['seconds']:5.1f} s  {row['bottleneck']:<10} {row['first']:<28}"
    return f"{head} {row['place'].rsplit(':')[-1]:<5} {'; '.join(row['failures'])}".rstrip()


def summary(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The numbers of the benchmark."""
    planted = [row for row in rows if not row["healthy"]]
    healthy = [row for row in rows if row["healthy"]]
    lines = [row for row in planted if row["right_line"] is not None]
    return {
        "first finding right": _of(planted, "right_first"),
        "bottleneck right": _of(rows, "right_bottleneck"),
        "line right": _of(lines, "right_line"),
        "99 % accounted for": _of(rows, "accounted"),
        "healthy left alone": _of(healthy, "right_first"),
        "all of it right": f"{sum(not row['failures'] for row in rows)} of {len(rows)}",
        "load while running": f"{max((row['load'] for row in rows), default=0.0):.1f} at most",
    }


def _of(rows: list[dict[str, Any]], key: str) -> str:
    right = sum(bool(row[key]) for row in rows)
    return f"{right} of {len(rows)} ({100 * right / len(rows):.0f} %)" if rows else "none ran"


if __name__ == "__main__":
    sys.exit(main())
