"""Bytes a step costs on disk: a plain loop recorded, measured, and its files weighed by what is in them.

``python benchmarks/recording_size.py [--steps 8000] [--out FILE]`` prints a table. The limit is 200 bytes a
step, the notes (settings, source text) left out: they are written once. Below it: the memory that making the
report takes, and what a further step adds to it.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from hotloop.flow.examine import examine, publish, read
from hotloop.flow.observe import new_run_folder, observe

LIMIT_BYTES = 200
#: The second recording for the report's memory is so many times as long.
LONGER = 6

#: What a process's file holds: SQL for the bytes of a row, and the tables it is in.
CONTENTS = {
    "rows": (
        "length(data) + 20",
        "(SELECT process, data FROM chunks UNION ALL SELECT process, data FROM iterators)",
    ),
    "notes": ("length(CAST(json AS BLOB)) + length(kind) + 8", "notes"),
}

LOOPS = {
    "in-process loader": (0, "0.3 ms"),
    "2 workers": (2, "0.3 ms"),
    "in-process, 5 ms of work": (0, "5 ms"),
}

SCRIPT = """
import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
steps, workers, work_s = {steps}, {workers}, {work_s}
data = TensorDataset(torch.randn(steps * 8, 16), torch.randn(steps * 8, 1))
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
criterion = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in DataLoader(data, batch_size=8, shuffle=True, num_workers=workers):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    if work_s:
        time.sleep(work_s)
"""


REPORT = """
import resource, sys
from pathlib import Path
from hotloop.flow.examine import examine, publish, read
from hotloop.flow.observe import new_run_folder, observe
examination = examine(read(Path(sys.argv[1])))
publish(examination, Path(sys.argv[1]))
print(examination.ranks[0].num_steps, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def weigh(folder: Path) -> dict[str, float]:
    """Bytes of the recording by content."""
    found: dict[str, float] = {"rows": 0, "notes": 0, "system": 0, "rest": 0}
    for path in folder.glob("*.sqlite"):
        if path.name == "system.sqlite":
            found["system"] += path.stat().st_size
            continue
        counted = 0
        with sqlite3.connect(path) as db:
            for content, (size_of, tables) in CONTENTS.items():
                ((size,),) = db.execute(f"SELECT coalesce(sum({size_of}), 0) FROM {tables}")
                found[content] += size
                counted += size
        db.close()
        found["rest"] += path.stat().st_size - counted
    return found


def recorded(scratch: Path, workers: int, work_s: float, steps: int) -> Path:
    """Run a loop under observation."""
    script = scratch / "train.py"
    script.write_text(SCRIPT.format(steps=steps, workers=workers, work_s=work_s))
    folder = new_run_folder(scratch / "run", [sys.executable, str(script)])
    observe([sys.executable, str(script)], folder)
    return folder


def measure(workers: int, work_s: float, steps: int) -> tuple[int, dict[str, float], int]:
    """Number of steps seen, bytes by content, and all bytes of the SQLite files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = recorded(Path(scratch), workers, work_s, steps)
        examination = examine(read(folder))
        publish(examination, folder)
        whole = sum(path.stat().st_size for path in folder.glob("*.sqlite"))
        return examination.ranks[0].num_steps, weigh(folder), whole


def report_memory(steps: int) -> tuple[int, int]:
    """Number of steps seen, and the most memory (bytes) that making their report takes."""
    # As in a long recording: arrays are given back as soon as they are not needed.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = recorded(Path(scratch), 0, 0.0, steps)
        command = [sys.executable, "-c", REPORT, str(folder)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        seen, size = done.stdout.split()
        return int(seen), int(size)


def main() -> int:
    """Print the table; 1 when a loop is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    options = parser.parse_args()
    steps, load, found = options.steps, os.getloadavg(), []
    print(f"{'loop':26} {'steps':>6} {'rows':>7} {'system':>7} {'notes':>12} {'B/step':>7}")
    for name, (workers, work) in LOOPS.items():
        work_s = 0.0 if work == "0.3 ms" else 0.0045
        seen, parts, whole = measure(workers, work_s, steps if not work_s else steps // 3)
        each = (whole - parts["notes"]) / seen
        found.append({"loop": name, "steps": seen, "bytes_per_step": each, **parts})
        print(
            f"{name:26} {seen:6} {parts['rows'] / seen:7.1f} {parts['system'] / seen:7.1f} "
            f"{parts['notes'] / 1024:8.1f} KiB {each:7.1f}"
        )
    over = max(row["bytes_per_step"] for row in found) > LIMIT_BYTES
    print(f"limit {LIMIT_BYTES} B/step: {'OVER' if over else 'held'}")
    (few, less), (many, more) = report_memory(steps), report_memory(LONGER * steps)
    print(
        f"memory of the report: {few:,} steps {less / 2**20:.0f} MiB, {many:,} steps {more / 2**20:.0f} MiB: "
        f"{(more - less) / (many - few):.0f} bytes a further step"
    )
    if options.out:
        report = [{"steps": few, "peak_bytes": less}, {"steps": many, "peak_bytes": more}]
        told = {"cores": os.cpu_count(), "load": load, "rows": found, "report": report}
        options.out.write_text(json.dumps(told, indent=1) + "\n")
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
