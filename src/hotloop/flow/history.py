"""The runs of a folder over time: how fast each was, what held it back, and where the speed changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, isfinite, log, sqrt
from pathlib import Path
from time import localtime, strftime
from typing import Any, Final

from hotloop.errors import HotloopError, UsageError
from hotloop.flow.examine import build_report, examine, read
from hotloop.foreign import clean
from hotloop.foreign import read as read_file
from hotloop.stats import NORMAL95, mean_of, pooled_deviation, t95
from hotloop.units import rate

#: A change is told from this many earlier runs on: two do not say how far runs differ anyhow.
_LEAST_RUNS: Final = 3
_MOST_RUNS: Final = 12
#: Less is not worth a mark, however sure.
_WORTH_RATIO: Final = 0.02


@dataclass(frozen=True)
class Entry:
    """One run. ``per_s`` is of samples, of steps where ``of`` says so; None where it did not train whole."""

    name: str
    command: str
    start_unix_s: float
    bottleneck: str
    of: str
    per_s: float | None
    half: float  # of its own 95 % interval, as a part of it
    change: str = ""  # why it is no plain run of the command
    ratio: tuple[float, float, float] | None = None  # to the runs before, with its interval
    earlier: int = 0  # how many those were
    on_cpu: bool = False  # nothing else computes

    @property
    def changed(self) -> bool:
        """Whether it is faster or slower than runs before differ among themselves."""
        if self.ratio is None:
            return False
        middle, low, high = self.ratio
        return not low <= 1 <= high and abs(middle - 1) >= _WORTH_RATIO

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**self.__dict__, "changed": self.changed}


def history(folder: Path) -> list[Entry]:
    """Runs by command and time. Raises UsageError where there are none; what cannot be read is left out."""
    found = [
        one for path in sorted(folder.glob("*")) if (path / "run.json").is_file() and (one := _entry(path))
    ]
    if not found:
        raise UsageError(
            f"{folder} holds no run", hint="hotloop run -- python train.py, or name a folder of runs"
        )
    commands = dict.fromkeys(one.command for one in sorted(found, key=lambda one: one.start_unix_s))
    return [one for command in commands for one in _judged([it for it in found if it.command == command])]


def _judged(entries: Sequence[Entry]) -> list[Entry]:
    """Each plain run against those before it that count the same, back to the last change."""
    told: list[Entry] = []
    counted: dict[str, list[float]] = {}
    for one in sorted(entries, key=lambda one: one.start_unix_s):
        if one.per_s is None or one.change:
            told.append(one)
            continue
        now, before = log(one.per_s), counted.get(one.of, [])
        if len(before) >= _LEAST_RUNS:
            spread, freedom = pooled_deviation([before])
            error = hypot(max(spread, one.half / NORMAL95), spread / sqrt(len(before)))
            middle, half = now - mean_of(before), t95(freedom) * error
            ratio = exp(middle), exp(middle - half), exp(middle + half)
            one = replace(one, ratio=ratio, earlier=len(before))
        counted[one.of] = [now] if one.changed else [*before, now][-_MOST_RUNS:]
        told.append(one)
    return told


def _entry(path: Path) -> Entry | None:
    """From its ``report.json``, which is foreign data; measured anew where there is none."""
    try:
        try:
            report = json.loads(read_file(path / "report.json"))
        except FileNotFoundError:
            report = build_report(examine(read(path)))
        command, pace = [str(word) for word in report["command"]], report["throughput"]
        facts = report.get("facts")
        of = "samples" if pace["samples_per_s"] else "steps"
        per_s = _number(pace["samples_per_s"] or pace["steps_per_s"])
        edges = pace["ci95"] or (0.0, 0.0)
        half = (_number(edges[1]) - _number(edges[0])) / 2 / (_number(pace["steps_per_s"]) or 1.0)
        whole = report["exit_code"] == 0 and per_s > 0
        return Entry(
            name=clean(path.name),
            command=clean(shlex.join(command)),
            start_unix_s=_number(report["start_unix_s"]),
            bottleneck=clean(report["bottleneck"]),
            on_cpu=isinstance(facts, dict) and not facts.get("accelerator"),
            of=of,
            per_s=per_s if whole else None,
            half=half,
            change=_change_of(path, report),
        )
    except (OSError, ValueError, TypeError, LookupError, RecursionError, HotloopError):
        return None


def _change_of(path: Path, report: dict[str, Any]) -> str:
    """What makes this another run than the command alone; "" for nothing."""
    if report.get("what_if") or (path / "what_if.json").is_file():
        return "what-if"
    if report.get("patch"):
        return "patched"
    applied = [f"{one['id']}={one.get('value')}".removesuffix("=None") for one in report.get("applied") or ()]
    if applied:
        return clean(f"applied {' '.join(applied)}")
    return "a trial" if path.resolve().parent.name == "trials" else ""


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def render(entries: Sequence[Entry]) -> str:
    """A table of each command, the oldest run first."""
    lines: list[str] = []
    for command in dict.fromkeys(one.command for one in entries):
        shown = [one for one in entries if one.command == command]
        of = next((one.of for one in shown if one.per_s is not None), "samples")
        wide = max(len(one.name) for one in shown)
        lines += ["", command, f"  {'begun':<17}{of + '/s':>14}  {'held back by':<13}{'run':<{wide}} change"]
        for one in shown:
            pace = "not whole"
            if one.per_s is not None:
                unit = f"± {one.half:.0%}".replace("%", " %") if one.of == of else f"{one.of}/s"
                pace = f"{rate(one.per_s)} {unit}"
            at = strftime("%Y-%m-%d %H:%M", localtime(one.start_unix_s))
            by = "computing" if one.bottleneck == "device" and one.on_cpu else one.bottleneck
            lines.append(f"  {at:<17}{pace:>14}  {by:<13}{one.name:<{wide}} {_change(one)}".rstrip())
    if all(one.ratio is None for one in entries):
        lines += ["", f"a change is marked from the run after {_LEAST_RUNS} like it on"]
    return "\n".join(lines[1:]) + "\n"


def _change(one: Entry) -> str:
    if not one.changed or one.ratio is None:
        return one.change
    return f"{'faster' if one.ratio[0] > 1 else 'SLOWER'} {one.ratio[0]:.2f}x"


def slower(entries: Sequence[Entry], limit: float) -> list[str]:
    """Of each command whose newest plain run is slower than those before by more than ``limit``: how much."""
    found = []
    for one in {one.command: one for one in entries if one.per_s is not None and not one.change}.values():
        if one.ratio is not None and one.ratio[2] < 1 - limit:
            middle, low, high = one.ratio
            found.append(f"{one.name}: {middle:.3f}x [{low:.3f}, {high:.3f}] of {one.earlier} runs before")
    return found
