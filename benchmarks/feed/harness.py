"""Ways of doing the same work, each in a process of its own, taking turns.

A round runs every way once, every other round backwards; a ratio compares two ways of the same round, and
what is reported is the median over rounds with its middle half. Progress goes to stderr, results to --out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import environments

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = environments.FOLDER / "data"
#: A process that takes longer than this is broken.
LIMIT_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Way:
    """One competitor in one benchmark: the function ``call`` of ``ways/<module>.py`` in ``environment``."""

    name: str
    module: str
    call: str
    environment: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    #: Shown beside what is required; not in every round.
    context: bool = False


@dataclass(frozen=True, kw_only=True)
class Target:
    """One line of the issue's numbers: what is required, what was measured, and whether it is met."""

    name: str
    required: str
    measured: str
    met: bool | None


class DidNotRunError(Exception):
    """A way has no environment here, or failed; the message says why."""


def rounds(
    ways: Sequence[Way], *, mode: str, num_rounds: int, settings: Mapping[str, Any], context_every: int = 2
) -> dict[str, dict[str, Any]]:
    """Every way's results over the rounds, and once why a way did not run."""
    seen: dict[str, dict[str, Any]] = {way.name: {"results": [], "failure": ""} for way in ways}
    for turn in range(num_rounds):
        for way in ways if turn % 2 == 0 else list(reversed(ways)):
            found = seen[way.name]
            if found["failure"] or (way.context and turn % context_every):
                continue
            start = time.perf_counter()
            try:
                result = once(way, mode, settings)
            except DidNotRunError as error:
                found["failure"] = str(error)
                say(f"  {way.name}: did not run: {error}")
                continue
            found["results"].append({"round": turn, **result})
            took = time.perf_counter() - start
            say(f"  {mode} {turn + 1}/{num_rounds} {way.name}: {result['value']:.4g} ({took:.1f} s)")
    return seen


def once(way: Way, mode: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One process of one way.

    Raises:
        DidNotRunError: with the reason.
    """
    try:
        python = environments.python_of(way.environment)
    except RuntimeError as error:
        raise DidNotRunError(str(error)) from error
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        work = {"data": str(DATA), **settings, **way.options}
        command = [python, str(HERE / "drive.py"), way.module, way.call, mode, json.dumps(work), str(out)]
        try:
            done = subprocess.run(
                command,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as error:
            raise DidNotRunError(f"no result within {LIMIT_S:.0f} s") from error
        if done.returncode or not out.exists():
            raise DidNotRunError(f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def environment() -> dict[str, str]:
    """The variables of a process that imports this checkout's hotloop."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def summarise(seen: Mapping[str, Mapping[str, Any]], base: str) -> list[dict[str, Any]]:
    """A row per way: median and middle half of its value, and of its ratio to ``base`` in the same round."""
    bases = {result["round"]: result["value"] for result in seen[base]["results"]}
    rows = []
    for name, found in seen.items():
        results = found["results"]
        if not results:
            rows.append({"way": name, "failure": found["failure"]})
            continue
        ratios = [r["value"] / bases[r["round"]] for r in results if bases.get(r["round"])]
        row: dict[str, Any] = {"way": name, **spread([r["value"] for r in results])}
        if ratios:
            row["ratio"] = spread(ratios)
        row["versions"] = results[0].get("versions", {})
        row["all"] = [r["value"] for r in results]
        rows.append(row)
    return rows


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and middle half."""
    ordered = sorted(values)
    quarters = statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    return {"median": statistics.median(ordered), "low": quarters[0], "high": quarters[2]}


def ratio(rows: Sequence[Mapping[str, Any]], way: str, other: str) -> dict[str, float] | None:
    """The ratio of two ways, round by round; None where one of them did not run."""
    found = {row["way"]: row.get("all") for row in rows}
    ours, theirs = found.get(way), found.get(other)
    if not ours or not theirs or len(ours) != len(theirs):
        return None
    return spread([mine / its for mine, its in zip(ours, theirs, strict=True)])


def print_rows(title: str, unit: str, rows: Sequence[Mapping[str, Any]], base: str) -> None:
    print(f"\n{title} ({unit}; ratio to {base} of the same round; middle half in brackets)")
    for row in rows:
        if "failure" in row:
            print(f"  {row['way']:<28} did not run: {' '.join(row['failure'].split())[:110]}")
            continue
        span = f"{row['low']:,.4g} .. {row['high']:,.4g}"
        text = f"  {row['way']:<28}{row['median']:>12,.4g}  [{span}]"
        if "ratio" in row:
            against = row["ratio"]
            text = f"{text:<70}{against['median']:>8.2f}x  [{against['low']:.2f} .. {against['high']:.2f}]"
        print(text)


def at_least(name: str, required: float, found: Mapping[str, float] | None, *, unit: str = "x") -> Target:
    """A target for a number that should be large."""
    if found is None:
        return Target(name=name, required=f">= {required:g}{unit}", measured="did not run", met=None)
    text = f"{found['median']:.3g}{unit} [{found['low']:.3g} .. {found['high']:.3g}]"
    met = found["median"] >= required
    return Target(name=name, required=f">= {required:g}{unit}", measured=text, met=met)


def at_most(name: str, required: float, found: Mapping[str, float] | None, *, unit: str = "x") -> Target:
    """A target for a number that should be small."""
    if found is None:
        return Target(name=name, required=f"<= {required:g}{unit}", measured="did not run", met=None)
    text = f"{found['median']:.3g}{unit} [{found['low']:.3g} .. {found['high']:.3g}]"
    met = found["median"] <= required
    return Target(name=name, required=f"<= {required:g}{unit}", measured=text, met=met)


def print_targets(targets: Sequence[Target]) -> None:
    lines = [("number", "required", "measured", "met")]
    for target in targets:
        met = {True: "yes", False: "NO", None: "-"}[target.met]
        lines.append((target.name, target.required, target.measured, met))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print()
    for line in lines:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def machine() -> dict[str, Any]:
    """Where and when this ran."""
    import torch

    model = re.search(r"model name\s*:\s*(.+)", _text("/proc/cpuinfo"))
    memory = re.search(r"MemTotal:\s*(\d+)", _text("/proc/meminfo"))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return {
        "cpu": model.group(1) if model else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": os.getloadavg(),
        "commit": commit.stdout.strip(),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def parser(text: str | None, *, num_rounds: int) -> argparse.ArgumentParser:
    """The options every benchmark here takes."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=num_rounds)
    made.add_argument("--seconds", type=float, default=1.5, help="measured time per process")
    made.add_argument("--workers", type=int, default=2)
    made.add_argument("--only", default="", help="only ways and parts whose name matches this expression")
    made.add_argument("--out", type=Path, help="write the results as JSON")
    return made


def chosen(ways: Sequence[Way], only: str, *, base: str) -> list[Way]:
    """The ways that match, and always the one that others are compared with."""
    return [way for way in ways if way.name == base or re.search(only, way.name, re.IGNORECASE)]


def finish(result: Mapping[str, Any], targets: Sequence[Target], out: Path | None) -> None:
    """Print the targets and write everything."""
    print_targets(targets)
    if out:
        whole = {"machine": machine(), **result, "targets": [asdict(target) for target in targets]}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(whole, indent=1) + "\n")
        say(f"written: {out}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
