"""All benchmarks of the feeding library, one after the other, and one table of what the issue requires.

    python benchmarks/feed/run.py [--minutes 15] [--only REGEX] [--out FILE]

Each part is a script of its own that writes JSON with its targets; the time is shared out as rounds. On a
machine that does something else meanwhile the table says nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
import harness
from harness import Target

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, kw_only=True)
class Part:
    """One script, about how long it takes per round (or in all), and the rounds it should have."""

    script: str
    seconds: float
    rounds: int = 0
    options: tuple[str, ...] = ()


#: Seconds as seen on two cores.
PARTS = (
    Part(script="cache", seconds=80, options=("--seconds", "0.5")),
    Part(script="transport", seconds=45, rounds=4, options=("--seconds", "1")),
    Part(script="loaders", seconds=110, rounds=6),
    Part(script="memory", seconds=12),
    Part(script="bake", seconds=45, options=("--rounds", "3", "--seconds", "0.7")),
    Part(script="auto", seconds=260),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=15.0, help="about how long all of it may take")
    parser.add_argument("--only", default="", help="only parts whose name matches this expression")
    parser.add_argument("--out", type=Path, default=default_out())
    args = parser.parse_args()
    make_environments()
    chosen = [part for part in PARTS if re.search(args.only, part.script)]
    begun = time.perf_counter()
    machine = harness.machine()
    results: dict[str, Any] = {}
    for part in chosen:
        results[part.script] = run(part, rounds(part, chosen, args.minutes * 60))
        write(args.out, machine, results, begun)
    harness.print_targets(targets(results))
    return 0


def default_out() -> Path:
    return HERE.parent / "results" / f"feed-cpu-{time.strftime('%Y-%m-%d', time.gmtime())}.json"


def make_environments() -> None:
    """Before the first clock starts."""
    for name in environments.PEERS:
        try:
            environments.python_of(name)
        except RuntimeError as error:
            harness.say(f"without a peer: {error}")


def rounds(part: Part, chosen: list[Part], seconds: float) -> int:
    """As many rounds as the part should have, fewer where the time is short, and at least two."""
    fixed = sum(one.seconds for one in chosen if not one.rounds)
    full = sum(one.seconds * one.rounds for one in chosen)
    share = (seconds - fixed) / full if full else 1.0
    return max(2, round(part.rounds * min(1.0, share)))


def run(part: Part, num_rounds: int) -> dict[str, Any]:
    """One script's JSON, or why there is none. What it prints goes through."""
    script = HERE / f"{part.script}.py"
    if not script.exists():
        return {"failure": "there is no such script"}
    harness.say(f"== {part.script}")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, str(script), "--out", str(out), *part.options]
        if part.rounds:
            command += ["--rounds", str(num_rounds)]
        done = subprocess.run(command, env=harness.environment())
        took = time.perf_counter() - start
        if not out.exists():
            return {"failure": f"exit {done.returncode}", "took_s": took}
        found: dict[str, Any] = json.loads(out.read_text())
        return {**found, "took_s": took}


def targets(results: Mapping[str, Any]) -> list[Target]:
    """The lines of every part; a part that did not run has one that says so."""
    found = []
    for name, result in results.items():
        if "targets" not in result:
            why = result.get("failure", "no targets in its results")
            found.append(Target(name=name, required="", measured=why[:60], met=None))
        found += [Target(**line) for line in result.get("targets", [])]
    return found


def write(out: Path, machine: Mapping[str, Any], results: Mapping[str, Any], begun: float) -> None:
    """What there is so far: a run that is cut short leaves its first parts."""
    lines = [vars(target) for target in targets(results)]
    whole = {"machine": machine, "took_s": time.perf_counter() - begun, "targets": lines, "parts": results}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
