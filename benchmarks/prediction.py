"""Predicted against measured: one recording of one setting of each case predicts all its other settings.

``python benchmarks/prediction.py [--only NAME]... [--seconds S] [--out FILE]``. Every case is recorded once
(``hotloop run``), at the setting given first; the others are then measured without hotloop, in processes of
their own. About five minutes on two quiet cores; on a machine that others use its numbers say nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from hotloop.flow.examine import examine, read  # noqa: E402
from hotloop.model import Pipeline, Setup, predict  # noqa: E402
from hotloop.tune.calibrate import calibrate  # noqa: E402

CASE = ROOT / "benchmarks" / "prediction_case.py"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A dataset and a step, recorded at ``recorded``. ``free``: the step leaves the cores to the workers."""

    name: str
    dataset: str
    step: str
    recorded: str
    settings: tuple[str, ...]
    free: bool
    epoch: int = 0
    seconds: float = 1.0  # times what is asked for

    def words(self, *settings: str, seconds: float) -> list[str]:
        """The command that runs these settings."""
        words = [sys.executable, str(CASE), self.dataset, self.step, *settings]
        words += ["--seconds", f"{seconds * self.seconds:g}"]
        return [*words, "--epoch", str(self.epoch)] if self.epoch else words


def _free(dataset: str, recorded: str, *settings: str, step: str = "sleep", seconds: float = 1.0) -> Case:
    return Case(
        name=dataset,
        dataset=dataset,
        step=step,
        recorded=recorded,
        settings=settings,
        free=True,
        seconds=seconds,
    )


def _shared(dataset: str, recorded: str, *settings: str) -> Case:
    return Case(
        name=f"{dataset}, step on cores",
        dataset=dataset,
        step="cpu",
        recorded=recorded,
        settings=settings,
        free=False,
    )


CASES = (
    _free("sleep", "1x2", "0", "2x2", "3x2", "4x2"),
    _free("cpu", "1x2", "0", "2x2", "4x2"),
    _free("tiny", "1x2", "0", "2x2", "4x2", step="short", seconds=0.5),
    _free("large", "1x2", "0", "2x2", "4x2"),
    _free("heavy", "1x2", "2x1", "2x2", "2x4", "3x2", "4x2", seconds=2.0),
    Case(
        name="sleep, short epochs", dataset="sleep", step="sleep", recorded="2x2", epoch=20, free=True,
        settings=("1x2", "2x2k", "4x2", "4x2k"),
    ),
    _shared("sleep", "1x2", "0", "2x2", "4x2"),
    _shared("cpu", "1x2", "0", "2x2", "4x2"),
    _shared("large", "1x2", "0", "2x2", "4x2"),
    _shared("heavy", "1x2", "2x2", "4x2"),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="cases whose name holds this"
    )
    parser.add_argument("--seconds", type=float, default=3.5, help="to measure each setting (default 3.5)")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument("--runs", type=Path, help="keep the recordings here")
    options = parser.parse_args()
    chosen = [case for case in CASES if not options.only or any(name in case.name for name in options.only)]
    out = options.out
    if out is None and not options.only:
        out = ROOT / "benchmarks" / "results" / f"prediction-cpu-{time.strftime('%Y-%m-%d')}.json"
    began, busy = time.monotonic(), os.getloadavg()[0]
    rows: list[dict[str, Any]] = []
    print(HEAD, flush=True)
    with tempfile.TemporaryDirectory(prefix="hotloop-prediction-") as folder:
        for number, case in enumerate(chosen):
            print(f"{number + 1}/{len(chosen)} {case.name}", file=sys.stderr, flush=True)
            found = measure(case, (options.runs or Path(folder)) / f"{number}", options.seconds)
            print("\n".join(map(line, found)), flush=True)
            rows += found
            document = {
                "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
                "load_before": busy,
                "seconds": round(time.monotonic() - began),
                "summary": summarize(rows),
                "rows": rows,
            }
            if out is not None:
                out.write_text(json.dumps(document, indent=1) + "\n")
    print(words(summarize(rows)))
    if out is not None:
        print(f"written to {out}", file=sys.stderr)
    return 0


def measure(case: Case, folder: Path, seconds: float) -> list[dict[str, Any]]:
    """Records the case once, measures its settings, and sets them beside the predictions."""
    command = [sys.executable, "-m", "hotloop", "run", "--out", str(folder), "--"]
    done = subprocess.run(
        [*command, *case.words(case.recorded, seconds=max(6.0, 1.5 * seconds))],
        env={**_environment(), "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{case.name}: {done.stderr[-2000:]}")
    evidence = examine(read(folder)).evidence
    assert evidence is not None
    pipeline = calibrate(evidence)
    settings = (case.recorded, *case.settings)
    done = subprocess.run(
        case.words(*settings, seconds=seconds), env=_environment(), capture_output=True, text=True, check=True
    )
    measured = {one["setting"]: one["s_per_step"] for one in map(json.loads, done.stdout.splitlines())}
    return [_row(case, setting, pipeline, measured[setting]) for setting in settings]


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def _row(case: Case, setting: str, pipeline: Pipeline, measured: float) -> dict[str, Any]:
    workers, _, prefetch = setting.removesuffix("k").partition("x")
    asked = Setup(num_workers=int(workers), persistent_workers=setting.endswith("k"))
    if prefetch:
        asked = Setup(
            num_workers=int(workers), prefetch_factor=int(prefetch), persistent_workers=setting.endswith("k")
        )
    told = predict(pipeline, asked)
    return {
        "case": case.name,
        "free": case.free,
        "setting": setting,
        "recorded": setting == case.recorded,
        "measured_s": measured,
        "predicted_s": told.s_per_step,
        "low_s": told.low,
        "high_s": told.high,
        "error": told.s_per_step / measured - 1,
        "inside": told.low <= measured <= told.high,
        "confirm": told.confirm,
    }


def summarize(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Over settings other than the recorded ones, by whether the step leaves the cores free."""
    found = {}
    for free, name in ((True, "cores free"), (False, "cores shared")):
        kind = [row for row in rows if row["free"] == free]
        told = [row for row in kind if not row["recorded"]]
        if not told:
            continue
        errors = sorted(abs(row["error"]) for row in told)
        groups = [
            [row for row in kind if row["case"] == case] for case in dict.fromkeys(r["case"] for r in kind)
        ]
        found[name] = {
            "configurations": len(told),
            "median_error": statistics.median(errors),
            "p90_error": errors[min(len(errors) - 1, math.ceil(0.9 * len(errors)) - 1)],
            "inside_interval": sum(row["inside"] for row in told) / len(told),
            "rank_correlation": statistics.mean(map(_correlation, groups)),
            "regret_of_pick": max(map(_regret, groups)),
            "confirm": sum(row["confirm"] for row in told) / len(told),
        }
    return found


def _correlation(rows: list[dict[str, Any]]) -> float:
    """Kendall's, over the pairs whose measured times differ by more than 3 %."""
    agree = total = 0
    for i, one in enumerate(rows):
        for other in rows[:i]:
            ratio = one["measured_s"] / other["measured_s"]
            if abs(math.log(ratio)) > 0.03:
                total += 1
                agree += (ratio > 1) == (one["predicted_s"] > other["predicted_s"])
    return 2 * agree / total - 1 if total else 1.0


def _regret(rows: list[dict[str, Any]]) -> float:
    """How much slower than the fastest measured the one is that was predicted to be fastest."""
    picked = min(rows, key=lambda row: row["predicted_s"])
    return picked["measured_s"] / min(row["measured_s"] for row in rows) - 1


HEAD = f"{'case':<22}{'setting':>8}{'measured':>11}{'predicted':>11}{'error':>8}  95 %"


def line(row: dict[str, Any]) -> str:
    """One setting, as a person reads it."""
    marks = "recorded" if row["recorded"] else "confirm" if row["confirm"] else ""
    span = f"{row['low_s'] * 1e3:.1f} - {row['high_s'] * 1e3:.1f}"
    return (
        f"{row['case']:<22}{row['setting']:>8}{row['measured_s'] * 1e3:>8.2f} ms"
        f"{row['predicted_s'] * 1e3:>8.2f} ms{row['error']:>+8.1%}  {span:<15}{marks}"
    ).rstrip()


def words(summary: dict[str, Any]) -> str:
    """The summary as a person reads it."""
    return "\n".join(
        f"\n{name}: {one['configurations']} configurations, median error {one['median_error']:.1%}, "
        f"p90 {one['p90_error']:.1%}, {one['inside_interval']:.0%} inside the interval,\n"
        f"rank correlation {one['rank_correlation']:.2f}, the pick is {one['regret_of_pick']:.1%} slower "
        f"than the best at most, «measure to confirm» said of {one['confirm']:.0%}"
        for name, one in summary.items()
    )


if __name__ == "__main__":
    sys.exit(main())
