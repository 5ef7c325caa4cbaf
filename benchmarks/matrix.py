"""The core suite under several Pythons and releases of torch, each in an environment of its own.

    python benchmarks/matrix.py [PYTHON:TORCH ...] [--out FILE] [--folder build/matrix]

PYTHON is an interpreter on PATH or a path; TORCH a release, or ``newest``. A row says whether the compiled
part was built and what pytest counted, and under the table stands what failed; a row leaves its log beside
the environment. The exit code is 1 if anything failed, or a Python that was asked for is not there. About 4
minutes of download and 10 of tests for each, for torch from the index brings its CUDA packages.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What touches the interpreter, torch or a process; reports and rules are plain Python over recordings.
CORE = [
    "bootstrap",
    "hooks",
    "launch",
    "probe",
    "record",
    "remedy",
    "robustness",
    "source",
    "state",
    "whatif",
]
DEFAULT = ["python3.11:2.6.0", "python3.11:2.13.0", *(f"python3.{minor}:newest" for minor in (12, 13, 14))]
NEEDS = [
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "pyyaml",
    "matplotlib",
    "tqdm",
    "h5py",
    "pillow",
    "tensorboard",
]
COLUMNS = "| Python | torch | compiled part | passed | failed | skipped | minutes |", "|---" * 7 + "|"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", nargs="*", default=DEFAULT, metavar="PYTHON:TORCH")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "matrix", help="of the environments")
    parser.add_argument("--jobs", default="2", help="tests that run at once")
    parser.add_argument("--only", nargs="+", default=CORE, help="folders of tests/")
    parser.add_argument("--out", type=Path, help="write the table as Markdown")
    args = parser.parse_args()
    # A shell's background job has it ignored, and so would have what its tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    title = "# The core suite under other versions"
    what = f"{date.today()} · `make matrix` · of `tests/`: {', '.join(args.only)}"
    table, failures = [*COLUMNS], [""]
    print(*table, sep="\n")
    good = True
    for pair in args.pairs:
        interpreter, _, torch = pair.rpartition(":")
        row, failed = tried(interpreter, torch, args.folder, args.only, args.jobs)
        good = good and not failed
        table.append(row)
        failures += [f"- {Path(interpreter).name}, torch {torch}: `{name}`" for name in failed]
        print(row, flush=True)
        if args.out:  # after every row: the next takes minutes
            args.out.write_text("\n".join([title, "", what, "", *table, *failures, ""]))
    print(*failures, sep="\n")
    return 0 if good else 1


def tried(
    interpreter: str, torch: str, folder: Path, only: Sequence[str], jobs: str
) -> tuple[str, list[str]]:
    """One row of the table, and what failed."""
    found = shutil.which(interpreter)
    if found is None:
        missing = [] if f"{interpreter}:{torch}" in DEFAULT else ["the Python"]
        return f"| {interpreter} | {torch} | not on this machine | | | | |", missing
    place = folder / f"{Path(interpreter).name}-torch-{torch}"
    python = place / "bin" / "python"
    begun = time.monotonic()
    log = place.with_suffix(place.suffix + ".log")
    folder.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:

        def run(*command: str) -> str:
            before = log.stat().st_size
            subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False)
            return log.read_bytes()[before:].decode(errors="replace").strip()

        if not python.exists():
            run(found, "-m", "venv", str(place))
        wanted = "torch" if torch == "newest" else f"torch=={torch}"
        run(str(python), "-m", "pip", "install", "--quiet", wanted)
        run(str(python), "-m", "pip", "install", "--quiet", str(ROOT), *NEEDS)
        ask = "import sys, torch; from hotloop import fast"
        ask += "; print(sys.version.split()[0], torch.__version__, fast.Hook and 'yes')"
        said = run(str(python), "-P", "-c", ask).rpartition("\n")[2].split()
        if len(said) != 3:
            return f"| {interpreter} | {torch} | does not import: {log} | | | | |", ["the import"]
        tests = [f"tests/{name}" for name in only]
        chosen = "not gpu and not alone and not nightly"
        told = run(
            str(python), "-m", "pytest", "-m", chosen, "-n", jobs, "--dist", "loadfile",
            "-p", "no:cacheprovider", "-o", "pythonpath=tests", *tests,
        )  # fmt: skip
    # Not the last line: a library may say something as the interpreter ends.
    last = re.findall(r"^.*\d (?:passed|failed|skipped|error).* in [\d.]+s.*$", told, re.MULTILINE)[-1:]
    counts = dict.fromkeys(("passed", "failed", "skipped", "error"), 0)
    for number, word in re.findall(r"(\d+) (passed|failed|skipped|error)", " ".join(last)):
        counts[word] = int(number)
    minutes = (time.monotonic() - begun) / 60
    wrong = counts["failed"] + counts["error"]
    compiled = "yes" if said[2] == "yes" else "no"
    cells = (*said[:2], compiled, counts["passed"], wrong, counts["skipped"], f"{minutes:.1f}")
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    if not failed and (wrong or not counts["passed"]):
        failed = [f"pytest, see {log}"]
    return f"| {' | '.join(map(str, cells))} |", failed


if __name__ == "__main__":
    sys.exit(main())
