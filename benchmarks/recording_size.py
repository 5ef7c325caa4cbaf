"""Bytes a step costs on disk: a plain loop recorded, measured, and its files weighed by what is in them.

``python benchmarks/recording_size.py [STEPS]`` prints a table. The limit is 200 bytes a step, steps table
included, the notes (settings, source text) left out: they are written once.
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

from hotloop import flow

LIMIT_BYTES = 200

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


def measure(workers: int, work_s: float, steps: int) -> tuple[int, dict[str, float], int]:
    """Number of steps seen, bytes by content, and all bytes of the SQLite files."""
    with tempfile.TemporaryDirectory() as scratch:
        script = Path(scratch) / "train.py"
        script.write_text(SCRIPT.format(steps=steps, workers=workers, work_s=work_s))
        folder = flow.new_run_folder(Path(scratch) / "run", [sys.executable, str(script)])
        flow.observe([sys.executable, str(script)], folder)
        examination = flow.examine(flow.read(folder))
        flow.publish(examination, folder)
        whole = sum(path.stat().st_size for path in folder.glob("*.sqlite"))
        return examination.ranks[0].num_steps, weigh(folder), whole


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
    return int(over)


if __name__ == "__main__":
    raise SystemExit(main())
