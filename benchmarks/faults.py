"""What is left of a run that something ends or damages: how many are reported, and the steps that are lost.

``python benchmarks/faults.py [--tries 20] [--out FILE]``

A training counts its steps in a file of its own. SIGKILL ends the training, ``hotloop run``, or both at once,
at a random moment after the first steps; the folder of the recording fills up (a tmpfs of 600 to
2,400 KiB); files of a whole recording lose their end, or have a random byte changed. Then
``hotloop report`` is made: it reports, refuses in words, or fails. Last, the nightly test of three machines
(network namespaces, clocks apart, one killed) runs, and the clocks of its merged run are read.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from workloads import machine

ROOT = Path(__file__).resolve().parents[1]
HOTLOOP = [sys.executable, "-m", "hotloop"]
NODES = "tests/launch/test_several_nodes.py"

SCRIPT = """
import os, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
done, count = os.open("count", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 0
while not os.path.exists("stop") and count < int(sys.argv[1]):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
        count += 1
        os.pwrite(done, b"%d" % count, 0)
        time.sleep(0.001)
"""


def counted(folder: Path) -> int:
    """Steps that the training says it did."""
    try:
        return int((folder / "count").read_text() or 0)
    except FileNotFoundError:
        return 0


def started(folder: Path, steps: int = 1_000_000, around: str = "") -> subprocess.Popen[bytes]:
    """A recorded training in a session of its own, its first steps done."""
    (folder / "train.py").write_text(SCRIPT)
    words = [*HOTLOOP, "run", "--out", "run", "--", sys.executable, "train.py", str(steps)]
    if around:
        words = ["unshare", "--mount", "sh", "-c", around, "sh", *words]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    run = subprocess.Popen(words, cwd=folder, start_new_session=True, **quiet)
    until = time.monotonic() + 120
    while counted(folder) < 20 and run.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    if counted(folder) < 20:
        raise SystemExit(f"no training begins in {folder}: {shlex.join(words)} ended with {run.poll()}")
    return run


def training_of(run: subprocess.Popen[bytes]) -> psutil.Process:
    """The training under ``hotloop run``."""
    return next(one for one in psutil.Process(run.pid).children() if "train.py" in one.cmdline())


def killed_training(folder: Path) -> None:
    """SIGKILL to the training."""
    run = started(folder)
    time.sleep(random.uniform(0.0, 2.0))
    training_of(run).kill()
    run.wait()


def killed_launcher(folder: Path) -> None:
    """SIGKILL to ``hotloop run``; the training goes on for a second."""
    run = started(folder)
    time.sleep(random.uniform(0.0, 2.0))
    training = training_of(run)
    run.kill()
    run.wait()
    time.sleep(1.0)
    (folder / "stop").touch()
    training.wait(timeout=60)


def killed_both(folder: Path) -> None:
    """SIGKILL to all processes at once."""
    run = started(folder)
    time.sleep(random.uniform(0.0, 2.0))
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def full(folder: Path) -> None:
    """The recording's folder fills up; the training ends by itself, with exit code 0."""
    (folder / "run").mkdir()
    mount = f"mount -t tmpfs -o size={random.randint(600, 2400)}k none run"
    run = started(folder, 6000, f'{mount} && "$@"; code=$?; cp -r run kept; exit $code')
    if run.wait():
        raise SystemExit(f"the training ended with {run.returncode} where the disk was full")
    (folder / "run").rmdir()
    (folder / "kept").rename(folder / "run")


def _damaged(folder: Path, whole: Path, harm: Callable[[Path], None]) -> None:
    shutil.copytree(whole / "run", folder / "run")
    (folder / "run" / "report.json").unlink()
    shutil.copy(whole / "count", folder / "count")
    files = [one for one in (folder / "run").rglob("*") if one.is_file() and one.stat().st_size]
    harm(random.choice(files))


def cut(path: Path) -> None:
    """A file without its end."""
    os.truncate(path, random.randrange(path.stat().st_size))


def flipped(path: Path) -> None:
    """A file with another byte in one place."""
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= random.randint(1, 255)
    path.write_bytes(data)


def reported(folder: Path) -> tuple[str, int]:
    """What ``hotloop report`` does, and the steps it speaks of."""
    done = subprocess.run(
        [*HOTLOOP, "report", "run", "--json"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    if done.returncode == 0:
        return "reported", json.loads(done.stdout)["num_steps"]
    refused = done.returncode in (1, 2) and "error:" in done.stderr and "Traceback" not in done.stderr
    return "refused in words" if refused else "failed", 0


def row(fault: str, tries: int, make: Callable[[Path], None]) -> dict[str, Any]:
    """So many tries of one fault."""
    ends = {"reported": 0, "refused in words": 0, "failed": 0}
    steps, lost = [], []
    for _ in range(tries):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            make(folder)
            end, seen = reported(folder)
            ends[end] += 1
            steps.append(counted(folder))
            lost.append(counted(folder) - seen)
    found = {"steps": median(steps), "lost": median(lost), "lost_most": max(lost)}
    return {"fault": fault, "tries": tries, **ends, **found}


def nodes() -> list[dict[str, Any]]:
    """The machines of the nightly test: how far their clocks are known."""
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "base"
        words = [sys.executable, "-m", "pytest", "-q", "-m", "nightly", "--basetemp", str(base), NODES]
        done = subprocess.run([*words, "-p", "no:xdist"], cwd=ROOT, capture_output=True, text=True)
        found = next(base.rglob("whole/run.json"), None)
        if found is None:
            raise SystemExit(f"the machines' runs were not merged:\n{done.stdout[-2000:]}")
        parts = json.loads(found.read_text())["parts"]
        return [{name: part[name] for name in ("name", "ahead_ns", "within_s")} for part in parts]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=20, help="of each fault")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the damage")
    parser.add_argument("--out", type=Path, help="the results, as JSON")
    args = parser.parse_args()
    random.seed(args.seed)
    result: dict[str, Any] = {"machine": machine(), "tries": args.tries, "seed": args.seed, "rows": []}
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch)
        started(whole, 600).wait()
        faults: dict[str, Callable[[Path], None]] = {
            "SIGKILL to the training": killed_training,
            "SIGKILL to hotloop run": killed_launcher,
            "SIGKILL to all at once": killed_both,
            "the disk fills up": full,
            "a file loses its end": lambda folder: _damaged(folder, whole, cut),
            "a byte is changed": lambda folder: _damaged(folder, whole, flipped),
        }
        for fault, make in faults.items():
            result["rows"].append(row(fault, args.tries, make))
            print(result["rows"][-1], flush=True)
            if args.out:
                args.out.write_text(json.dumps(result, indent=1) + "\n")
    result["nodes"] = nodes()
    print(*result["nodes"], sep="\n")
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
