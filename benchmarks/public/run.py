"""Public training scripts beside a truth that was written before hotloop saw them.

    python benchmarks/public/run.py FOLDER [--scripts FILE] [--only REGEX] [--out FILE.md]
                                           [--keep RUNS [--again]]

``scripts.json`` (and ``scripts-second.json``, ``-third`` to ``-sixth``) has, for each script,
repository and commit, the edits that let it run on a CPU, the program that makes its data, its command, and
the truth: first cause, place, bottleneck and accepted answers, from the source and from py-spy. The scripts
are others' and are not kept here: FOLDER holds one folder a script, named as in the list, with the code
fetched and edited, and a file COMMAND where another Python is needed.
Prints verdict and truth side by side; a person judges. Every run is one launch. With ``--keep`` recordings
stay, and ``--again`` judges them by the rules as they are now.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scripts", type=Path, default=HERE / "scripts.json", help="scripts and their truth")
    parser.add_argument("--only", default="", help="only scripts whose name matches this regular expression")
    parser.add_argument("--out", type=Path, help="write the table as Markdown")
    parser.add_argument("--timeout", type=float, default=150.0, help="seconds per script")
    parser.add_argument("--keep", type=Path, help="keep the recordings in this folder")
    parser.add_argument("--again", action="store_true", help="judge the recordings kept there, run nothing")
    options = parser.parse_args()
    if options.again and not options.keep:
        parser.error("--again needs --keep RUNS: the folder of the recordings")
    lines = ["| script | truth | hotloop: bottleneck, first finding | verdict |", "|---|---|---|---|"]
    with tempfile.TemporaryDirectory() as scratch:
        for script in json.loads(options.scripts.read_text()):
            place = options.folder / script["name"]
            if not place.is_dir() or not re.search(options.only, script["name"]):
                continue
            run = (options.keep or Path(scratch)).absolute() / script["name"]
            if not options.again:
                observe(script, place, run, options.timeout)
            lines.append(row(script, report_of(run)))
            print(lines[-1], flush=True)
            if options.out:
                options.out.write_text("\n".join(lines) + "\n")
    return 0


def observe(script: dict[str, Any], place: Path, run: Path, timeout: float) -> None:
    command = place / "COMMAND"
    words = shlex.split(command.read_text() if command.exists() else script["command"])
    shutil.rmtree(run, ignore_errors=True)
    hotloop("run", "--out", str(run), "--", *words, cwd=place, timeout=timeout)


def hotloop(*words: str, cwd: Path | None = None, timeout: float = 600.0) -> str:
    """Standard output. The exit code is the script's; a timeout of it is as good an end as any."""
    return subprocess.run(
        ["timeout", str(timeout), sys.executable, "-m", "hotloop", *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=False,
    ).stdout


def report_of(run: Path) -> dict[str, Any]:
    """The report by the rules as they are now."""
    text = hotloop("report", "--json", str(run)) if run.exists() else ""
    report: dict[str, Any] = json.loads(text) if text else {}
    return report


def row(script: dict[str, Any], report: dict[str, Any]) -> str:
    truth = script["truth"]
    wanted = f"{truth['bottleneck']}: {truth['first_cause']} ({truth['where']})"
    told = [one for one in report.get("findings", ()) if one["severity"] != "info"]
    first = "nothing above info"
    if told:
        where = told[0].get("where") or {}
        place = f" at {Path(where['file']).name}:{where['line']}" if where else ""
        first = f"{told[0]['id']} {told[0]['severity']} {told[0]['share']:.0%}{place}"
    found = f"{report.get('bottleneck', 'no report')}; {first}"
    return (
        " | ".join(["", script["name"], wanted, found, report.get("verdict", ""), ""])
        .strip()
        .replace("\n", " ")
    )


if __name__ == "__main__":
    sys.exit(main())
