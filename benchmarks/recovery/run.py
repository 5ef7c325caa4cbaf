"""How much of what is to be had does ``hotloop tune`` find? One row for each planted case with a cure.

    python benchmarks/recovery/run.py [--cases a,b] [--minutes 40] [--budget 60s] [--allow semantic]
        [--out FILE [--resume]]
    python benchmarks/recovery/table.py FILE

As found, after ``tune --allow numeric``, hand-cured by an expert (``cures.py``), and the ceiling: the cured
step with an ideal loader (``ideal.py``: batches from memory, one copy per field), or with batches for free
(``what-if free-data``) where samples are not the same twice or read once, or what the cores could deliver
where the cure makes every batch anew. Found, tuned and cured are launched in turns, ``--pairs`` times, for as
many steps as the launches of ``tune``, and their rates taken as ``tune`` takes them; the run as found is
launched once where ``tune`` confirmed its outcome against it, and those launches count. About a minute and a
half a case. With ``--minutes`` no case is begun that would not fit (named). ``--out`` has each row as soon
as it is measured; a later run with the same file skips those of the same hotloop, with ``--resume`` those of
any.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import geometric_mean
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src"), str(HERE.parent / "accuracy")]

from case import read  # noqa: E402
from cures import CURES, cured  # noqa: E402
from results import Results  # noqa: E402
from table import HEADING, line, summary  # noqa: E402

from hotloop.flow.examine import examine  # noqa: E402
from hotloop.record.read import open_recording  # noqa: E402
from hotloop.remedy import catalogue  # noqa: E402
from hotloop.report.ranks import lead  # noqa: E402
from hotloop.tune.ratios import Ratio, unpaired  # noqa: E402
from hotloop.tune.trial import queue_of, rate  # noqa: E402

#: Steps beyond tune's for what is cured, at least: its workers make batches ahead, which do not count.
AHEAD = 64
#: Whole systems: what else they are given, so that a case is of minutes.
WORKLOADS = {
    "tcn_state": ("--epochs", "4"),
    "landmarks": ("--identical_targets", "--epochs", "3"),
}


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
    parser.add_argument("--budget", default="60s", help="of each tuning")
    parser.add_argument(
        "--allow", choices=("exact", "numeric", "semantic"), default="numeric", help="what tune may alter"
    )
    parser.add_argument("--pairs", type=int, default=2, help="launches of as found, tuned and cured")
    parser.add_argument("--out", type=Path, help="the results, as JSON; goes on where it exists")
    parser.add_argument("--keep", type=Path, help="a folder for the recordings predictions are made from")
    parser.add_argument("--resume", action="store_true", help="skip rows of other versions too")
    args = parser.parse_args()
    begun_s, longest_s = time.monotonic(), 0.0
    results = Results(args.out)
    print(HEADING, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        subjects = [
            one
            for one in chosen(args.cases, Path(scratch))
            if not results.has("cases", one.name, any_version=args.resume)
        ]
        for number, subject in enumerate(subjects):
            spent_s = time.monotonic() - begun_s
            if args.minutes and number and spent_s + longest_s > 60 * args.minutes:
                print("no time for:", ", ".join(one.name for one in subjects[number:]), file=sys.stderr)
                break
            row = try_one(subject, Path(scratch) / subject.name, args.budget, args.pairs, args.allow)
            if args.keep:
                keep(Path(scratch) / subject.name / "tune", args.keep / subject.name, row)
            shutil.rmtree(Path(scratch) / subject.name)
            longest_s = max(longest_s, row["seconds"])
            print(line(row), flush=True)
            results.put("cases", subject.name, row)
    print()
    for name, value in summary(list(results.sections.get("cases", {}).values())).items():
        print(f"{name:>34}  {value}")
    return 0


def keep(tune: Path, folder: Path, row: Mapping[str, Any]) -> None:
    """The run as found, by which predictions can be made again."""
    for trial in row.get("trials", ()):
        if trial["key"] == "first":
            shutil.copytree(tune / trial["folder"], folder / trial["key"], dirs_exist_ok=True)


def chosen(names: str, scratch: Path) -> list[Subject]:
    """The subjects asked for, their cured copies written."""
    known = [*CURES, *WORKLOADS]
    wanted = [name for name in names.split(",") if name] or known
    unknown = set(wanted) - set(known)
    if unknown:
        raise SystemExit(f"no cure for {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    return [_subject(name, scratch) for name in wanted]


def _subject(name: str, scratch: Path) -> Subject:
    if name in WORKLOADS:
        start = [sys.executable, str(ROOT / "workloads" / name / "train.py"), "--scale", "cpu"]
        start += [*WORKLOADS[name], "--out", str(scratch / name), "--variant"]
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


def try_one(subject: Subject, folder: Path, budget: str, pairs: int, allow: str) -> dict[str, Any]:
    """One row. What did not come about is None, and ``failures`` says why."""
    folder.mkdir()
    begun_s = time.monotonic()
    row: dict[str, Any] = {"case": subject.name, "by": subject.by, "allow": allow, "failures": []}
    row["load"] = os.getloadavg()[0]
    told = tune(subject, folder / "tune", budget, allow, row)
    row["tune_seconds"] = time.monotonic() - begun_s
    live = [one for one in map(catalogue.parse, row.get("remedies", ())) if one.remedy.has_live(one.value)]
    applied = [word for one in live for word in ("--apply", str(one))]
    if told.get("in_force"):  # the others are a patch
        applied += ["--patch", str(folder / "tune" / told["in_force"])]
    steps = told.get("launch", {}).get("steps")
    ahead = max(AHEAD, queue_of(told["best"]["settings"])) if told else AHEAD
    more = max(steps + ahead, told["launch"]["fill_steps"]) if steps else None
    row["once"] = told.get("launch", {}).get("once", 0)
    arms: dict[str, tuple[list[str], list[str], int | None]] = {
        "found": (subject.found, [], steps),
        "tuned": (subject.found, applied, more),
        "cured": (subject.cured, [], more),
    }
    if not applied:
        del arms["tuned"]
    logs: dict[str, list[float]] = {name: [] for name in arms}
    logs["found"] += confirmed(row)
    known = len(logs["found"])
    for turn in range(pairs):
        for name in list(arms) if turn % 2 == 0 else list(arms)[::-1]:
            if name == "found" and turn and len(logs[name]) > 1:
                continue
            command, options, num = arms[name]
            options = [*options, "--steps", str(num)] if num else options
            seen = launch(command, subject.pin, folder / f"{name}-{turn}", row, options)
            if seen is not None:
                logs[name].append(seen)
    for name, rates in {"tuned": logs["found"], **logs}.items():
        row[f"{name}_per_s"] = geometric_mean(rates) if rates else None
    row["launches_per_s"] = logs
    if applied:
        judge(row, logs["found"][known:] or logs["found"], logs["tuned"])
    row["ceiling_per_s"] = ceiling(subject, folder / "ceiling", row)
    for other in ("found", "cured", "ceiling"):
        row[f"tuned_to_{other}"] = _ratio(row["tuned_per_s"], row[f"{other}_per_s"])
    row["seconds"] = time.monotonic() - begun_s
    return row


def tune(subject: Subject, out: Path, budget: str, allow: str, row: dict[str, Any]) -> dict[str, Any]:
    """tune.json; its parts go into the row."""
    options = ["--budget", budget, "--allow", allow, "--json", "--out", str(out)]
    done = call([*subject.pin, *HOTLOOP, "tune", *options, "--", *subject.found], 1800)
    try:
        document: dict[str, Any] = json.loads((out / "tune.json").read_text())
    except OSError:
        row["failures"].append(f"tune: {done.stderr.strip()[-300:]}")
        return {}
    best = document["best"]
    gain = best["gain"]
    row.update(remedies=best["remedies"], gain=gain, ended=document["ended"])
    row.update(predicted=best["predicted"], predicted_ci95=best["predicted_ci95"], draws=best["draws"])
    row["trials"] = [{key: trial[key] for key in TOLD} for trial in document["trials"]]
    return document


def judge(row: dict[str, Any], found: list[float], tuned: list[float]) -> None:
    """What was predicted, and what ``tune`` promised, against what was measured.

    ``measured`` is of all launches, those of ``tune`` too: launches minutes apart differ by more than those
    of a pair. ``inside``: it holds the prediction, ``meets``: the two intervals meet; ``held``: the interval
    that was promised and that of the launches made after it (``found``, ``tuned``) do.
    """
    trials = [one for one in row["trials"] if "/" in one["key"] and one["s_per_step"]]
    rates = [(sorted(one["remedies"]), one["samples_per_s"] or 1 / one["s_per_step"]) for one in trials]
    base = [rate for remedies, rate in rates if not remedies]
    best = [rate for remedies, rate in rates if remedies == sorted(row["remedies"])]
    whole, after = _gain([*base, *found], [*best, *tuned]), _gain(found, tuned)
    row["measured"], row["after"] = ([one.ratio, one.low, one.high] for one in (whole, after))
    low, high = row["gain"]["ci95"]
    row["held"] = low <= after.high and after.low <= high
    if row["predicted"]:
        least, most = row["predicted_ci95"] or (row["predicted"],) * 2
        row["inside"] = whole.low <= row["predicted"] <= whole.high
        row["meets"] = least <= whole.high and whole.low <= most


def _gain(base: list[float], tuned: list[float]) -> Ratio:
    return unpaired([-log(rate) for rate in base], [-log(rate) for rate in tuned])


def confirmed(row: Mapping[str, Any]) -> list[float]:
    """Samples per second of the run as found where ``tune`` confirmed what it chose."""
    confirm = [one for one in row.get("trials", ()) if one["key"].startswith("confirm/")]
    found = [one for one in confirm if not one["remedies"] and one["s_per_step"]]
    return [one["samples_per_s"] or 1 / one["s_per_step"] for one in found]


def launch(
    command: list[str], pin: tuple[str, ...], out: Path, row: dict[str, Any], options: list[str] | None = None
) -> float | None:
    """Samples per second of one launch, steps where samples are not known; ``row`` keeps samples per step."""
    start = [*pin, *HOTLOOP, "run", "--throw-away", "--out", str(out), *(options or [])]
    done = call([*start, "--", *command], 600)
    try:
        examination = examine(open_recording(out))
    except Exception as error:
        row["failures"].append(f"{out.name}: {error}: {done.stderr[-200:]}")
        return None
    steps = lead(examination.ranks)
    # The third epoch on, where there is one: all that is told apart is steady by then.
    found = rate(examination.ranks, steps, fills=True, once=row.get("once", 0)) if steps is not None else None
    if found is None:
        row["failures"].append(f"{out.name}: no steps: {done.stderr[-200:]}")
        return None
    rate_per_s = found.samples_per_s or 1 / found.s_per_step
    row["samples_per_step"] = rate_per_s * found.s_per_step
    row.setdefault("waiting", {})[out.name] = steps.per_step("data_wait") / steps.step_s
    return rate_per_s


def ceiling(subject: Subject, folder: Path, row: dict[str, Any]) -> float | None:
    """What could be had, as cured; ``row["ceiling_of"]`` says how it was measured.

    Where samples are the same in each epoch: with the ideal loader (``ideal.py``). Else the step with batches
    for free, or all work on all cores, where that takes longer and no cure did without it. Where the cure
    does not run long enough: without its waiting.
    """
    per_step, cured_per_s = row.get("samples_per_step"), row["cured_per_s"] or 0.0
    if row.get("draws") == [] and (found := ideal(subject, folder, row)):
        row["ceiling_of"] = "ideal loader"
        return _ratio(per_step, found)
    told = free_data(subject, folder, row)
    alone, shared = (_ratio(per_step, told.get(name)) for name in ("step_alone_s", "cores_s"))
    if alone is not None:
        row["ceiling_of"] = "free data"
        return alone if shared is None or cured_per_s > shared else min(alone, shared)
    waiting = row.get("waiting", {}).get("cured-0")
    row["ceiling_of"] = "cured, accounted"
    return cured_per_s / (1 - waiting) if cured_per_s and waiting is not None else None


def ideal(subject: Subject, folder: Path, row: dict[str, Any]) -> float | None:
    """Seconds per step with the ideal loader, None where there are no two epochs, or no DataLoader."""
    start = [*subject.pin, *HOTLOOP, "run", "--throw-away", "--out", f"{folder}-ideal", "--"]
    done = call([*start, sys.executable, str(HERE / "ideal.py"), *subject.cured[1:]], 600)
    told = [line for line in done.stderr.splitlines() if line.startswith('{"ideal_s_per_step"')]
    if not told:
        row["ideal_unknown"] = done.stderr.strip()[-200:]
        return None
    return float(json.loads(told[-1])["ideal_s_per_step"])


def free_data(subject: Subject, folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """what_if.json of the cured run, empty where nothing was measured."""
    options = ["free-data", "--throw-away", "--budget", "8s", "--json", "--out", f"{folder}-free"]
    done = call([*subject.pin, *HOTLOOP, "what-if", *options, "--", *subject.cured], 600)
    told: dict[str, Any] = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if not told:
        row["ceiling_unknown"] = done.stderr.strip()[-200:]
    return told


def call(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(part for part in (str(ROOT / "src"), os.environ.get("PYTHONPATH", "")) if part)
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, errors="replace", timeout=timeout_s,
        cwd=tempfile.gettempdir(), stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


#: What a row keeps of a trial.
TOLD = ("key", "remedies", "status", "folder", "samples_per_s", "s_per_step", "seconds", "more")
HOTLOOP = (sys.executable, "-m", "hotloop")


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


if __name__ == "__main__":
    sys.exit(main())
