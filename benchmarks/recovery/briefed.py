"""What is recovered where an agent writes the change that ``hotloop brief`` describes?

    python benchmarks/recovery/briefed.py [--cases a,b] [--pairs 2] [--out FILE]

The planted cases that an edit cures and in which ``tune`` by itself stays below 0.7 of the cure. Two agents,
who had seen neither hotloop's source and pages nor the cures nor the words above each case, had ``hotloop
run``, ``hotloop brief`` and what those name; what they wrote lies in ``briefed/``, as a patch of the script
without the words above it. For each case the script as found, with their patch, and as an expert cured it are
launched in turns; ``hotloop verify`` says whether the patch keeps what the brief told them to keep. Eight
launches a case, about a minute.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src"), str(HERE.parent / "accuracy")]

from cures import CURES  # noqa: E402
from results import Results  # noqa: E402
from run import HOTLOOP, call, launch  # noqa: E402

PATCHES = HERE / "briefed"
#: What ``hotloop verify`` prints last.
_VERDICT = re.compile(r"^(?:passed|FAILED|cannot tell):.*", re.M)
_PARITY = re.compile(r"^parity +([\w-]+)", re.M)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="names, with commas between them (default: all)")
    parser.add_argument("--pairs", type=int, default=2, help="launches of as found, briefed and cured")
    parser.add_argument("--out", type=Path, help="the results, as JSON; goes on where it exists")
    args = parser.parse_args()
    results = Results(args.out)
    wanted = [name for name in args.cases.split(",") if name]
    for patch in sorted(PATCHES.glob("*.patch")):
        if (wanted and patch.stem not in wanted) or results.has("briefed", patch.stem, any_version=False):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            row = try_one(patch, Path(scratch), args.pairs)
        results.put("briefed", patch.stem, row)
        gain, part = (f"{row[f'briefed_to_{other}'] or 0:.2f}" for other in ("found", "cured"))
        print(f"{patch.stem:<34}{gain:>9}x{part:>8} of the cure  {row['verdict']}", flush=True)
    rows = list(results.sections.get("briefed", {}).values())
    for name in ("briefed_to_found", "briefed_to_cured"):
        known = [row[name] for row in rows if row[name]]
        print(f"{name}: median {median(known):.2f} of {len(known)}" if known else f"{name}: none")
    return 0


def plain(path: Path) -> str:
    """A case's script without the words above it, which name what is planted."""
    text = path.read_text()
    first = ast.parse(text).body[0]
    return "".join(text.splitlines(keepends=True)[first.end_lineno :]).lstrip("\n")


def try_one(patch: Path, scratch: Path, pairs: int) -> dict[str, Any]:
    """One row: rates in samples/s, or steps/s where samples are not known; None where there is none."""
    case = HERE.parent / "accuracy" / "cases" / f"{patch.stem}.py"
    scripts = {name: scratch / name / "train.py" for name in ("found", "briefed", "cured")}
    for script in scripts.values():
        script.parent.mkdir()
        script.write_text(plain(case))
    scripts["cured"].write_text(CURES[patch.stem].applied(case.read_text()))
    text = patch.read_text()
    subprocess.run(["git", "apply", "-"], cwd=scripts["briefed"].parent, input=text, text=True, check=True)
    effect = text.partition("effect: ")[2].partition("\n")[0]
    row: dict[str, Any] = {"case": patch.stem, "effect": effect, "failures": [], "load": os.getloadavg()[0]}
    rates: dict[str, list[float]] = {name: [] for name in scripts}
    for turn in range(pairs):
        for name in list(scripts) if turn % 2 == 0 else list(scripts)[::-1]:
            folder = scratch / f"{name}-{turn}"
            seen = launch([sys.executable, str(scripts[name])], (), folder, row)
            rates[name] += [seen] if seen else []
            shutil.rmtree(folder, ignore_errors=True)
    means = {name: geometric_mean(one) if one else None for name, one in rates.items()}
    row |= {f"{name}_per_s": one for name, one in means.items()}
    row["launches_per_s"] = rates
    for other in ("found", "cured"):
        mine, theirs = means["briefed"], means[other]
        row[f"briefed_to_{other}"] = mine / theirs if mine and theirs else None
    row["verdict"] = verdict(scripts, effect, scratch)
    return row


def verdict(scripts: dict[str, Path], effect: str, scratch: Path) -> str:
    """Parity and verdict of ``hotloop verify`` about two recorded runs."""
    runs = []
    for name in ("found", "briefed"):
        runs.append(str(scratch / f"{name}-evidence"))
        start = [*HOTLOOP, "run", "--evidence", "--out", runs[-1], "--"]
        call([*start, sys.executable, str(scripts[name])], 600)
    done = call([*HOTLOOP, "verify", "--effect", effect, *runs], 600)
    parity, found = _PARITY.search(done.stdout), _VERDICT.findall(done.stdout)
    if parity is None or not found:
        return f"none: {(done.stdout + done.stderr).strip()[-200:]}"
    return f"{found[-1]}; in fact {parity[1]}"


if __name__ == "__main__":
    sys.exit(main())
