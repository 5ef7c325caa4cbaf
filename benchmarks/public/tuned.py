"""Public scripts tuned: what ``hotloop tune`` promises, and what its patch gives when it is measured again.

    python benchmarks/public/tuned.py FOLDER --only REGEX --out FILE.md [--scripts FILE] [--budget 75]
                                             [--pairs 2]

FOLDER as for ``run.py``. A copy of each script is tuned with ``--allow semantic``, its tree compared before
and after; the patch is then written into a second copy. Both are run in turns under ``hotloop run`` for as
many steps as a launch of the tuning had, and compared as tune compares: promised against measured, each with
its 95 % interval. Rows are added to FILE.md; scripts that it has already are left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from run import HERE, hotloop

from hotloop.flow.examine import examine, read
from hotloop.remedy import catalogue
from hotloop.tune.ratios import pooled
from hotloop.tune.trial import fills, rate

HEAD = (
    "| script | tried | taken | promised (95 %) | measured again (95 %) | its tree after tune |\n"
    "|---|---|---|---|---|---|\n"
)


def main() -> int:
    how = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=how)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scripts", type=Path, default=HERE / "scripts-second.json")
    parser.add_argument("--only", default="", help="only scripts whose name matches this regular expression")
    parser.add_argument("--budget", type=float, default=75.0, help="seconds of each tuning")
    parser.add_argument("--pairs", type=int, default=2, help="runs of each copy afterwards")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if not options.out.exists():
        options.out.write_text(HEAD)
    for script in json.loads(options.scripts.read_text()):
        place = options.folder / script["name"]
        known = f"| {script['name']} |" in options.out.read_text()
        if place.is_dir() and re.search(options.only, script["name"]) and not known:
            with tempfile.TemporaryDirectory() as scratch:
                told = row(script, place, Path(scratch), options.budget, options.pairs)
            with options.out.open("a") as table:
                table.write(told + "\n")
            print(told, flush=True)
    return 0


def row(script: dict[str, Any], place: Path, scratch: Path, budget: float, pairs: int) -> str:
    command = place / "COMMAND"
    words = shlex.split(command.read_text() if command.exists() else script["command"])
    base, new, tuning = scratch / "base", scratch / "new", scratch / "tuning"
    for copy in (base, new):
        shutil.copytree(place, copy, symlinks=True)
    before = tree(base)
    asked = ["--budget", f"{budget:.0f}s", "--allow", "semantic", "--out", str(tuning), "--json"]
    text = hotloop("tune", *asked, "--", *words, cwd=base, timeout=2 * budget)
    same = "as it was" if tree(base) == before else "CHANGED"
    found: dict[str, Any] = json.loads(text) if text else {}
    best = found.get("best", {})
    tried = dict.fromkeys(" + ".join(one["remedies"]) for one in found.get("trials", ()) if one["remedies"])
    told = [script["name"], ", ".join(tried) or "nothing"]
    if not found or not best["remedies"]:
        left = "; ".join(f"{one['remedy']}: {one['why']}" for one in found.get("left_out", ()))
        return " | ".join(["", *told, f"nothing ({left[:200]})", "-", "-", same, ""]).strip()
    gain = best["gain"]
    promised = f"{gain['ratio']:.2f} ({gain['ci95'][0]:.2f} - {gain['ci95'][1]:.2f})"
    patch = ["git", "apply", str(tuning / "tune.patch")]
    live = [] if found["patch"] else [word for one in best["remedies"] for word in ("--apply", one)]
    if found["patch"] and subprocess.run(patch, cwd=new, check=False).returncode:
        return " | ".join(["", *told, " + ".join(best["remedies"]), promised, "no patch", same, ""]).strip()
    filled, launch = bool(fills(tuple(map(catalogue.parse, best["remedies"])))), found["launch"]
    steps = launch["steps"] and max(launch["steps"], launch["fill_steps"] * filled)
    logs = []
    for turn in range(pairs):
        order = [(base, []), (new, live)] if turn % 2 == 0 else [(new, live), (base, [])]
        spans = {folder: step_s(folder, words, more, steps, filled) for folder, more in order}
        logs.append(math.log(spans[base] / spans[new]))
    again = pooled({"all": logs})["all"]
    measured = f"{again.ratio:.2f} ({again.low:.2f} - {again.high:.2f})"
    return " | ".join(["", *told, " + ".join(best["remedies"]), promised, measured, same, ""]).strip()


def step_s(folder: Path, words: list[str], more: list[str], steps: int | None, filled: bool) -> float:
    """Seconds of a step, with all between the steps, of a run whose writes are dropped; where a cache is
    ``filled`` first, of the epochs after that.
    """
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        limit = ["--steps", str(steps)] if steps else []
        hotloop("run", "--throw-away", "--out", str(run), *limit, *more, "--", *words, cwd=folder)
        found = examine(read(run))
    told = rate(found.ranks, found.lead, strict=False, fills=filled) if found.lead is not None else None
    assert told is not None, f"no steps of {folder}"
    return told.s_per_step


def tree(folder: Path) -> dict[str, str]:
    """What every file of a folder holds."""
    files = (one for one in folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts)
    return {str(one.relative_to(folder)): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


if __name__ == "__main__":
    sys.exit(main())
