"""How much of what is to be had does ``hotloop tune`` find? One row for each planted case with a cure.

    python benchmarks/recovery/run.py [--cases a,b] [--minutes 8] [--budget 2m] [--out FILE]

As found, after ``tune --allow numeric``, hand-cured by an expert (``cures.py``), and the ceiling: the step
with batches for free (``what-if free-data``). As found and cured are launched in turns, ``--pairs`` times;
all rates are taken as ``tune`` takes them. With ``--minutes`` no case is begun that would not fit (named).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src"), str(HERE.parent / "accuracy")]

from case import read  # noqa: E402
from cures import CURES, cured  # noqa: E402

from hotloop import flow  # noqa: E402
from hotloop.report.ranks import lead  # noqa: E402
from hotloop.tune.trial import rate  # noqa: E402

TCN = ROOT / "workloads" / "tcn_state" / "train.py"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One case: the command as found, hand-cured, and what it is pinned to."""

    name: str
    found: list[str]
    cured: list[str]
    by: str
    pin: tuple[str, ...] = ()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="names, with commas between them (default: all)")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no case that would not fit")
    parser.add_argument("--budget", default="2m", help="of each tuning")
    parser.add_argument("--pairs", type=int, default=3, help="launches of as found and cured")
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    args = parser.parse_args()
    begun_s, rows, longest_s = time.monotonic(), [], 0.0
    with tempfile.TemporaryDirectory() as scratch:
        subjects = chosen(args.cases, Path(scratch))
        for number, subject in enumerate(subjects):
            spent_s = time.monotonic() - begun_s
            if args.minutes and spent_s + longest_s > 60 * args.minutes and rows:
                print("no time for:", ", ".join(one.name for one in subjects[number:]), file=sys.stderr)
                break
            row = try_one(subject, Path(scratch) / subject.name, args.budget, args.pairs)
            longest_s = max(longest_s, row["seconds"])
            print(line(row), flush=True)
            rows.append(row)
    result = {"summary": summary(rows), "cases": rows, "cores": len(os.sched_getaffinity(0))}
    print()
    for name, value in result["summary"].items():
        print(f"{name:>34}  {value}")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def chosen(names: str, scratch: Path) -> list[Subject]:
    """The subjects asked for, their cured copies written."""
    wanted = [name for name in names.split(",") if name] or ["tcn_state", *CURES]
    unknown = set(wanted) - {"tcn_state", *CURES}
    if unknown:
        raise SystemExit(
            f"no cure for {', '.join(sorted(unknown))}; there are: tcn_state, {', '.join(CURES)}"
        )
    return [_subject(name, scratch) for name in wanted]


def _subject(name: str, scratch: Path) -> Subject:
    if name == "tcn_state":
        start = [
            sys.executable,
            str(TCN),
            "--scale",
            "cpu",
            "--epochs",
            "2",
            "--out",
            str(scratch / "tcn"),
            "--variant",
        ]
        return Subject(name=name, found=[*start, "as_found"], cured=[*start, "cured"], by="code")
    folders = (HERE / "cases", HERE.parent / "accuracy" / "cases")
    path = next(one for one in (folder / f"{name}.py" for folder in folders) if one.exists())
    case = read(path)
    copies = scratch / "cured"
    copies.mkdir(exist_ok=True)
    return Subject(
        name=name,
        found=[sys.executable, str(path), *case.args],
        cured=[sys.executable, str(cured(path, copies)), *case.args],
        by=CURES[name].by,
        pin=tuple(case.pinned([])),
    )


def try_one(subject: Subject, folder: Path, budget: str, pairs: int) -> dict[str, Any]:
    """One row. What did not come about is None, and ``failures`` says why."""
    folder.mkdir()
    begun_s = time.monotonic()
    row: dict[str, Any] = {"case": subject.name, "by": subject.by, "failures": [], "load": os.getloadavg()[0]}
    tuned = tune(subject, folder / "tune", budget, row)
    row["tune_seconds"] = time.monotonic() - begun_s
    logs: dict[str, list[float]] = {"found": [], "cured": []}
    for turn in range(pairs):
        for which in ("found", "cured") if turn % 2 == 0 else ("cured", "found"):
            seen = launch(getattr(subject, which), subject.pin, folder / f"{which}-{turn}", row)
            if seen is not None:
                logs[which].append(seen)
    found = median(logs["found"]) if logs["found"] else None
    row["found_per_s"] = found
    row["cured_per_s"] = median(logs["cured"]) if logs["cured"] else None
    gain = tuned.get("gain", {}).get("ratio", 1.0) if tuned.get("gain") else 1.0
    row["tuned_per_s"] = found * gain if found else None
    row["ceiling_per_s"] = ceiling(subject, folder / "free", row)
    row["tuned_to_cured"] = _ratio(row["tuned_per_s"], row["cured_per_s"])
    row["tuned_to_ceiling"] = _ratio(row["tuned_per_s"], row["ceiling_per_s"])
    row["seconds"] = time.monotonic() - begun_s
    return row


def tune(subject: Subject, out: Path, budget: str, row: dict[str, Any]) -> dict[str, Any]:
    """``best`` of tune.json; its parts go into the row."""
    options = ["--budget", budget, "--allow", "numeric", "--json", "--out", str(out)]
    done = call([*subject.pin, *HOTLOOP, "tune", *options, "--", *subject.found], 1800)
    try:
        document = json.loads((out / "tune.json").read_text())
    except OSError:
        row["failures"].append(f"tune: {done.stderr.strip()[-300:]}")
        return {}
    best: dict[str, Any] = document["best"]
    gain = best["gain"]
    row.update(remedies=best["remedies"], gain=gain, predicted=best["predicted"], ended=document["ended"])
    row["launches"] = len(document["trials"])
    row["inside"] = None
    if gain and best["predicted"]:
        row["inside"] = gain["ci95"][0] <= best["predicted"] <= gain["ci95"][1]
    return best


def launch(command: list[str], pin: tuple[str, ...], out: Path, row: dict[str, Any]) -> float | None:
    """Samples per second of one launch, steps where samples are not known; ``row`` keeps samples per step."""
    done = call([*pin, *HOTLOOP, "run", "--throw-away", "--out", str(out), "--", *command], 600)
    try:
        examination = flow.examine(flow.read(out))
    except Exception as error:
        row["failures"].append(f"{out.name}: {error}: {done.stderr[-200:]}")
        return None
    steps = lead(examination.ranks)
    found = rate(examination.ranks, steps) if steps is not None else None
    if found is None:
        row["failures"].append(f"{out.name}: no steps: {done.stderr[-200:]}")
        return None
    rate_per_s = found.samples_per_s or 1 / found.s_per_step
    row["samples_per_step"] = rate_per_s * found.s_per_step
    return rate_per_s


def ceiling(subject: Subject, out: Path, row: dict[str, Any]) -> float | None:
    """Samples per second of the step with batches for free."""
    options = ["--throw-away", "--budget", "20s", "--json", "--out", str(out)]
    done = call([*subject.pin, *HOTLOOP, "what-if", *options, "--", *subject.found], 600)
    try:
        told = json.loads(done.stdout)
    except ValueError:
        row["failures"].append(f"ceiling: {done.stderr.strip()[-200:]}")
        return None
    alone = told["step_alone_s"]
    row["step_alone_s"], row["loader_alone_s"] = alone, told["loader_alone_s"]
    return row["samples_per_step"] / alone if alone and row.get("samples_per_step") else None


def call(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(part for part in (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if part)
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, errors="replace", timeout=timeout_s,
        cwd=tempfile.gettempdir(), stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


HOTLOOP = (sys.executable, "-m", "hotloop")


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    rates = "".join(f"{row[f'{name}_per_s'] or 0:>10.0f}" for name in ("found", "tuned", "cured", "ceiling"))
    shares = "".join(f"{row[name] or 0:>7.0%}" for name in ("tuned_to_cured", "tuned_to_ceiling"))
    words = " + ".join(row.get("remedies") or ["-"])
    failed = f"  {row['failures'][0][:60]}" if row["failures"] else ""
    return f"{row['case']:<30}{rates}{shares}{row['tune_seconds']:>6.0f} s  {words}{failed}"


def summary(rows: list[dict[str, Any]]) -> dict[str, str]:
    """The numbers of the benchmark."""
    settings = [row for row in rows if row["by"] == "settings"]
    told = [row["inside"] for row in rows if row.get("inside") is not None]
    slower = [row["case"] for row in rows if row.get("gain") and row["gain"]["ci95"][0] < 1]
    return {
        "tuned to cured, median": _median(rows, "tuned_to_cured"),
        "the same where settings cure": _median(settings, "tuned_to_cured"),
        "tuned to ceiling, median": _median(rows, "tuned_to_ceiling"),
        "recommended and not faster": ", ".join(slower) or "none",
        "predicted inside the interval": f"{sum(told)} of {len(told)}",
        "seconds of a tuning, mean": f"{fmean(row['tune_seconds'] for row in rows):.0f}" if rows else "-",
        "load while running": f"{max((row['load'] for row in rows), default=0.0):.1f} at most",
    }


def _median(rows: list[dict[str, Any]], key: str) -> str:
    known = [row[key] for row in rows if row[key]]
    return f"{median(known):.0%} of {len(known)}" if known else "-"


if __name__ == "__main__":
    sys.exit(main())
