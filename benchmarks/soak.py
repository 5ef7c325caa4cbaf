"""A long training under full observation, watched by four viewers: what grows over time.

``python benchmarks/soak.py [--minutes 60] [--json FILE]``

The training runs under ``hotloop run --evidence`` with two workers; three ``hotloop watch --jsonl`` and a
page (``--web``) follow it. Once a second: memory of each, space of the raw files and of the run
folder, steps done. The same script runs alone for a tenth of the time before and after: what
observing costs. Exit code 1: memory grew from the third quarter to the last, the raw files took over 16 MB,
the folder grew by more than its steps and seconds may take, or the last quarter is over 5 % slower than the
first. The last says something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any

import psutil

SCRIPT = """
import os, sys, time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.randn(4096, 64), torch.randn(4096, 1))
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
count, done = 0, os.open("count", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    for x, y in DataLoader(data, batch_size=8, shuffle=True, num_workers=2):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        count += 1
        time.sleep(0.005)
        os.pwrite(done, b"%d" % count, 0)
        if time.monotonic() > until:
            break
"""
HOTLOOP = [sys.executable, "-m", "hotloop"]
#: From the third quarter to the last nothing grows by more: MB, and part of what it was.
GROWTH_MB, GROWTH_RATIO = 16.0, 0.05
RAW_MB = 16.0
#: What the folder may grow by: a step with its evidence took 580, a second of the sampled system 9,500.
STEP_BYTES, SECOND_BYTES = 700, 12_000
#: The last quarter has no fewer steps per second than the first, but for this part.
SLOWER_RATIO = 0.05


def steps(folder: Path) -> int:
    """Steps that the script has done."""
    return int((folder / "count").read_text() or 0) if (folder / "count").exists() else 0


def alone(folder: Path, seconds: float) -> float:
    """Steps per second of the script without hotloop."""
    subprocess.run([sys.executable, "train.py", str(seconds)], cwd=folder, check=True)
    return steps(folder) / seconds


def memory_mb(process: psutil.Process) -> float:
    """Memory of a process, MB; 0 of one that is gone."""
    try:
        return float(process.memory_info().rss) / 1e6
    except psutil.Error:
        return 0.0


def taken_mb(folder: Path) -> float:
    """Space on disk of the files in a folder and below, MB."""
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_blocks * 512
        except OSError:  # gone meanwhile
            continue
    return found / 1e6


def look_at(log: Path) -> None:
    """Read what the page is sent, as a browser does, until it ends."""
    while not (found := re.search(r"http://\S+/", log.read_text())):
        time.sleep(0.1)
    with suppress(OSError), urllib.request.urlopen(f"{found[0]}events") as events:
        while events.read1(1 << 16):
            pass


def watched(folder: Path, seconds: float) -> list[dict[str, float]]:
    """Samples of a run under four viewers, one a second."""
    words = ["run", "--evidence", "--out", "run", "--", sys.executable, "train.py", str(seconds)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    launcher, viewers = psutil.Popen([*HOTLOOP, *words], **quiet), []
    found: list[dict[str, float]] = []
    began, training = time.monotonic(), None
    while launcher.poll() is None:
        if not viewers and steps(folder):
            viewers = [psutil.Popen([*HOTLOOP, "watch", "run", "--jsonl"], **quiet) for _ in range(3)]
            with (folder / "page.log").open("w") as log:
                page = psutil.Popen([*HOTLOOP, "watch", "run", "--web", "0"], **{**quiet, "stdout": log})
            viewers.append(page)
            Thread(target=look_at, args=(folder / "page.log",), daemon=True).start()
            training = next(one for one in launcher.children() if "train.py" in one.cmdline())
        elif training is not None:
            found.append(
                {
                    "s": time.monotonic() - began,
                    "steps": steps(folder),
                    "training_mb": memory_mb(training),
                    "launcher_mb": memory_mb(launcher),
                    **{f"viewer_{at}_mb": memory_mb(viewer) for at, viewer in enumerate(viewers, 1)},
                    "raw_mb": taken_mb(folder / "run" / "raw"),
                    "folder_mb": taken_mb(folder / "run"),
                }
            )
        time.sleep(1)
    for viewer in viewers:
        viewer.terminate()
        viewer.wait()
    return [one for one in found if one["training_mb"] and one["steps"]]


def quarters_of(found: list[dict[str, float]]) -> list[list[dict[str, float]]]:
    """The samples in four equal parts."""
    return [found[len(found) * at // 4 : len(found) * (at + 1) // 4] for at in range(4)]


def faults(found: list[dict[str, float]]) -> list[str]:
    """What is not flat, in words."""
    quarters, said = quarters_of(found), []
    for name in (key for key in found[0] if key.endswith("_mb") and key not in ("raw_mb", "folder_mb")):
        third, last = (median(one[name] for one in quarters[at]) for at in (2, 3))
        if last - third > max(GROWTH_MB, GROWTH_RATIO * third):
            said.append(f"{name} grew from {third:.1f} to {last:.1f} MB")
        if not last:
            said.append(f"{name}: it ended before the training did")
    if (most := max(one["raw_mb"] for one in found)) > RAW_MB:
        said.append(f"the raw files took {most:.1f} MB")
    first, last = found[len(found) // 2], found[-1]
    grown = (last["folder_mb"] - first["folder_mb"]) * 1e6
    allowed = STEP_BYTES * (last["steps"] - first["steps"]) + SECOND_BYTES * (last["s"] - first["s"])
    said += [f"the folder grew by {grown / 1e6:.1f} MB"] if grown > allowed else []
    rates = rates_of(quarters)
    if rates[-1] < (1 - SLOWER_RATIO) * rates[0]:
        said.append(f"steps per second fell from {rates[0]:.1f} to {rates[-1]:.1f}")
    return said


def rates_of(quarters: list[list[dict[str, float]]]) -> list[float]:
    """Steps per second of each."""
    return [(last["steps"] - first["steps"]) / (last["s"] - first["s"]) for first, *_, last in quarters]


def main() -> int:
    """Returns 0 where all is flat."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    seconds = 60 * options.minutes
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "train.py").write_text(SCRIPT)
        before = alone(folder, seconds / 10)
        (folder / "count").unlink()
        found = watched(folder, seconds)
        after = alone(folder, seconds / 10)
    result: dict[str, Any] = {
        "minutes": options.minutes,
        "date": time.strftime("%Y-%m-%d"),
        "cores": len(psutil.Process().cpu_affinity()),
        "load": os.getloadavg(),
        "alone_steps_per_s": [before, after],
        "observed_steps_per_s_by_quarter": rates_of(quarters_of(found)),
        "faults": faults(found),
        "samples": found[:: max(1, len(found) // 120)],
    }
    shown = {key: result[key] for key in result if key != "samples"}
    print(json.dumps({**shown, "first": found[0], "last": found[-1]}, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
