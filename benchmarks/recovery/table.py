"""The table of a results file: ``python benchmarks/recovery/table.py FILE``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

Row = Mapping[str, Any]
HEADING = "samples/s".ljust(30) + "    found    tuned    cured  ceiling  /cured /ceil.    tune"
#: Tuned and as found differ by chance up to this much.
NOISE = 0.97
#: In shorter steps handing a batch over, which the ceiling does without a loader, is a good part.
LONG_S = 0.002


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    sections = json.loads(parser.parse_args().file.read_text())
    print("\n".join(table(sections)))
    return 0


def table(sections: Mapping[str, Mapping[str, Row]]) -> list[str]:
    """All rows, and the numbers that the issue asks for."""
    rows = list(sections.get("cases", {}).values())
    lines = [HEADING, *map(line, rows), ""]
    lines += [f"{name:>34}  {value}" for name, value in summary(rows).items()]
    for row in sections.get("grid", {}).values():
        lines.append(
            f"{'grid: ' + row['data']:>34}  {row['tuned_to_best']:.0%} of its best ({row['grid_best']}) in "
            f"{row['cost_ratio']:.0%} of its {row['grid_seconds']:.0f} s"
        )
    for row in sections.get("peers", {}).values():
        gain = _ratio(row.get("tuned_per_s"), row.get("found_per_s"))
        told = f"{gain:.2f}x in {row['seconds']:.0f} s" if gain else "nothing measured"
        lines.append(f"{row['peer'] + ': ' + row['case']:>44}  {told}")
    return lines


def line(row: Row) -> str:
    """One row."""
    rates = "".join(f"{row[f'{name}_per_s'] or 0:>9.0f}" for name in ("found", "tuned", "cured", "ceiling"))
    shares = f"{row['tuned_to_cured'] or 0:>8.0%}{row['tuned_to_ceiling'] or 0:>7.0%}"
    words = " + ".join(row.get("remedies") or ["-"])
    failed = f"  {row['failures'][0][:60]}" if row["failures"] else ""
    return f"{row['case']:<30}{rates}{shares}{row['tune_seconds']:>6.0f} s  {words}{failed}"


def summary(rows: Sequence[Row]) -> dict[str, str]:
    """The numbers of the benchmark."""
    settings = [row for row in rows if row["by"] == "settings"]
    long = [row for row in rows if _step_s(row) >= LONG_S]
    told = [(row["inside"], row["meets"]) for row in rows if row.get("meets") is not None]
    covered = [_covered(row) for row in rows if row.get("measured") and row.get("predicted_ci95")]
    held = [row["held"] for row in rows if row.get("held") is not None]
    after = [_told(row) for row in rows if row.get("gain") and row.get("after")]
    slower = [row["case"] for row in rows if (row.get("tuned_to_found") or 1.0) < NOISE]
    return {
        "tuned to cured, median": _median(rows, "tuned_to_cured"),
        "the same where settings cure": _median(settings, "tuned_to_cured"),
        "tuned to ceiling, median": _median(rows, "tuned_to_ceiling"),
        "and where settings cure": _median(settings, "tuned_to_ceiling"),
        f"where a step is {LONG_S * 1e3:.0f} ms or more": _median(long, "tuned_to_ceiling"),
        "slower than as found": ", ".join(slower) or "none",
        "measured inside the predicted": f"{sum(covered)} of {len(covered)}",
        "predicted inside the measured": f"{sum(one for one, _ in told)} of {len(told)}",
        "both intervals meet": f"{sum(one for _, one in told)} of {len(told)}",
        "gain tune tells inside the after": f"{sum(after)} of {len(after)}",
        "what was promised held": f"{sum(held)} of {len(held)}",
        "seconds of a tuning, mean": f"{fmean(row['tune_seconds'] for row in rows):.0f}" if rows else "-",
        "load while running": f"{max((row['load'] for row in rows), default=0.0):.1f} at most",
    }


def _median(rows: Sequence[Row], key: str) -> str:
    known = [row[key] for row in rows if row[key]]
    return f"{median(known):.0%} of {len(known)}" if known else "-"


def _covered(row: Row) -> bool:
    """Whether the predicted interval holds the measured gain."""
    low, high = row["predicted_ci95"]
    return bool(low <= row["measured"][0] <= high)


def _told(row: Row) -> bool:
    """Whether launches made after ``tune`` hold the gain it ended with."""
    low, high = row["after"][1:]
    return bool(low <= row["gain"]["ratio"] <= high)


def _step_s(row: Row) -> float:
    return (row.get("samples_per_step") or 0.0) / (row["tuned_per_s"] or row["found_per_s"] or float("inf"))


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


if __name__ == "__main__":
    sys.exit(main())
