"""How much memory one budget takes for R ranks with W workers each, and what goes with it.

    python benchmarks/feed/memory.py [--ranks 2] [--workers 2] [--budget-mb 256] [--only REGEX] [--out FILE]

Ranks are processes of their own with torchrun's variables. Each reads a dataset larger than the budget for
two epochs; then everything stands still and /proc is read: the pages of the cache's files (each file once,
however many processes map it), and the proportional share (PSS) of every process, summed. Against it: a
dictionary in every worker's dataset, the way it is usually written, and stocaching, one per rank.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environments
import harness
from harness import Target

HERE = Path(__file__).resolve().parent
WAYS = {"hotloop": "", "nothing cached": "", "dictionary per worker": "", "stocaching per rank": "stocaching"}
TOLERANCE = 0.02


def main() -> int:
    parser = harness.parser(__doc__, num_rounds=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--budget-mb", type=int, default=256)
    args = parser.parse_args()
    result = measure(args.ranks, args.workers, args.budget_mb << 20, args.only)
    report(result)
    harness.finish({"memory": result}, targets(result), args.out)
    return 0


def measure(ranks: int, workers: int, budget_bytes: int, only: str = "") -> dict[str, Any]:
    """What every way holds with the same budget."""
    rows = []
    for name, environment in WAYS.items():
        if not re.search(only, name):
            continue
        harness.say(f"memory: {name}, {ranks} ranks x {workers} workers")
        try:
            rows.append({"way": name, **_held(name, environment, ranks, workers, budget_bytes)})
        except (RuntimeError, subprocess.SubprocessError) as error:
            rows.append({"way": name, "failure": str(error)[-300:]})
            harness.say(f"  did not run: {error}")
    return {"ranks": ranks, "workers": workers, "budget_bytes": budget_bytes, "rows": rows}


def _held(name: str, environment: str, ranks: int, workers: int, budget_bytes: int) -> dict[str, Any]:
    with _ranks(name, environment, ranks, workers, budget_bytes) as processes:
        answers = [_answer(process) for process in processes]
        pids = [pid for process in processes for pid in _family(process.pid)]
        files = shared_files(pids)
        cache_bytes = sum(size for (_, label), size in files.items() if "cache" in label)
        return {
            "processes": len(pids),
            "pss_bytes": sum(pss_bytes(pid) for pid in pids),
            "cache_bytes": cache_bytes,
            "files": {f"{label}#{inode}": size for (inode, label), size in files.items()},
            "samples": [answer["samples"] for answer in answers],
            "hit_rate": answers[0].get("hit_rate"),
        }


@contextmanager
def _ranks(
    name: str, environment: str, ranks: int, workers: int, budget_bytes: int
) -> Iterator[list[subprocess.Popen[str]]]:
    python = environments.python_of(environment)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    processes = []
    try:
        for rank in range(ranks):
            names = ("RANK", "LOCAL_RANK"), ("WORLD_SIZE", "LOCAL_WORLD_SIZE")
            env = {**os.environ, "PYTHONPATH": str(harness.ROOT / "src"), "MASTER_ADDR": "127.0.0.1"}
            env |= {key: str(rank) for key in names[0]} | {key: str(ranks) for key in names[1]}
            env |= {"MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": f"memory-{os.getpid()}-{port}"}
            given = [name, str(workers), str(budget_bytes), str(harness.DATA)]
            command = [python, str(HERE / "rank.py"), *given]
            pipe = subprocess.PIPE
            processes.append(subprocess.Popen(command, env=env, text=True, stdin=pipe, stdout=pipe))
        yield processes
    finally:
        for process in processes:
            # End of input is what a rank waits for; one that is stuck is ended.
            if process.stdin:
                process.stdin.close()
        for process in processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout:
                process.stdout.close()


def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The line a rank writes once it has read everything."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"a rank ended with {process.wait()} before it had read its samples")


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _family(int(child))
    return found


def pss_bytes(pid: int) -> int:
    """The proportional share of everything a process has mapped."""
    match = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    return int(match.group(1)) * 1024 if match else 0


def shared_files(pids: Sequence[int]) -> dict[tuple[int, str], int]:
    """By inode and name: the pages that anonymous shared files hold, whether anybody maps them or not."""
    found = {}
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = str(link.readlink())
                if "memfd:" in target or target.startswith("/dev/shm"):
                    status = link.stat()
                    found[status.st_ino, target.split("memfd:")[-1].split(" ")[0]] = status.st_blocks * 512
            except OSError:
                continue
    return found


def report(result: Mapping[str, Any]) -> None:
    budget = result["budget_bytes"]
    print(f"\nmemory: {result['ranks']} ranks x {result['workers']} workers, budget {budget / 1e6:.0f} MB")
    for row in result["rows"]:
        if "failure" in row:
            print(f"  {row['way']:<24} did not run: {row['failure'][:100]}")
            continue
        print(
            f"  {row['way']:<24}{row['pss_bytes'] / 1e6:>10.0f} MB in {row['processes']} processes (PSS), "
            f"cache files {row['cache_bytes'] / 1e6:.1f} MB, {over(result, row):+.2f} budgets above none"
        )


def over(result: Mapping[str, Any], row: Mapping[str, Any]) -> float:
    """How many budgets more than without any cache."""
    plain = next((one["pss_bytes"] for one in result["rows"] if one["way"] == "nothing cached"), 0)
    return float((row["pss_bytes"] - plain) / result["budget_bytes"])


def targets(result: Mapping[str, Any]) -> list[Target]:
    ranks, workers = result["ranks"], result["workers"]
    title = f"one budget for {ranks} ranks x {workers} workers"
    row = next((row for row in result["rows"] if row["way"] == "hotloop"), {"failure": ""})
    if "failure" in row:
        return [Target(name=title, required="<= 2 % over", measured="did not run", met=None)]
    excess = row["cache_bytes"] / result["budget_bytes"] - 1
    used = excess > -0.1
    text = f"{excess:+.2%} of the budget"
    return [Target(name=title, required="within 2 %", measured=text, met=excess <= TOLERANCE and used)]


if __name__ == "__main__":
    sys.exit(main())
