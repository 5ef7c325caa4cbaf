"""Bytes a step costs on disk: a plain loop recorded, measured, and its files weighed by what is in them.

``python benchmarks/recording_size.py [STEPS]`` prints a table. The limit is 200 bytes a step, steps table
included, the notes (settings, source text) left out: they are written once. Below it: the memory that making
the report takes, and what a further step adds to it.
"""

from __future__ import annotations

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
    """Bytes of the recording by content, from SQLite's own page accounting."""
    found: dict[str, float] = {"rows": 0, "notes": 0, "steps table": 0, "system": 0, "rest": 0}
    for path in folder.glob("*.sqlite"):
        names = {"chunks": "rows", "notes": "notes", "steps": "steps table"}
        with sqlite3.connect(path) as db:
            if path.name == "system.sqlite":
                found["system"] += path.stat().st_size
                continue
            counted = 0
            for table, content in names.items():
                columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
                size = " + ".join(f'coalesce(length(CAST("{name}" AS BLOB)), 0)' for name in columns)
                if table == "steps":
                    size = " + ".join(_stored(name) for name in columns)
                total = db.execute(f"SELECT coalesce(sum({size} + 4), 0) FROM {table}").fetchone()[0]
                found[content] += total
                counted += total
            found["rest"] += path.stat().st_size - counted
    return found


def _stored(name: str) -> str:
    """SQL for the bytes an integer takes in an SQLite record, its header byte included."""
    bounds = ((0, 1), (127, 2), (32767, 3), (8388607, 4), (2147483647, 5), (140737488355327, 7))
    cases = " ".join(
        f'WHEN coalesce("{name}", 0) BETWEEN -{top} AND {top} THEN {size}' for top, size in bounds
    )
    return f"CASE {cases} ELSE 9 END"


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
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    print(
        f"{'loop':26} {'steps':>6} {'rows':>7} {'steps table':>12} {'system':>7} {'notes':>12} {'B/step':>7}"
    )
    over = False
    for name, (workers, work) in LOOPS.items():
        work_s = 0.0 if work == "0.3 ms" else 0.0045
        seen, parts, whole = measure(workers, work_s, steps if not work_s else steps // 3)
        per_step = (whole - parts["notes"]) / seen
        over |= per_step > LIMIT_BYTES
        print(
            f"{name:26} {seen:6} {parts['rows'] / seen:7.1f} {parts['steps table'] / seen:12.1f}"
            f" {parts['system'] / seen:7.1f} {parts['notes'] / 1024:8.1f} KiB {per_step:7.1f}"
        )
    print(f"limit {LIMIT_BYTES} B/step: {'OVER' if over else 'held'}")
    (few, less), (many, more) = report_memory(steps), report_memory(LONGER * steps)
    print(
        f"memory of the report: {few:,} steps {less / 2**20:.0f} MiB, {many:,} steps {more / 2**20:.0f} MiB: "
        f"{(more - less) / (many - few):.0f} bytes a further step"
    )
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
