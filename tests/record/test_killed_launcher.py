"""A launcher killed between any two system calls of its storing leaves every row exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hotloop.record.read import open_recording

#: Stores the rows of a training process and of its workers.
LAUNCHER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import crafted
from hotloop.record.store import Store
store = Store(Path(sys.argv[1]))
store.begin(["x"], {})
for rank in range(4):
    pid = 10_000_000 * (rank + 1)  # more than there are
    crafted.write(store.raw_dir, pid, pid, steps=20_000, rank=rank)
    for number in range(1, 6):
        worker = {"role": "worker", "ppid": pid, "parent_main_pid": pid}
        crafted.write(store.raw_dir, pid + number, pid + number, steps=number, **worker)
print("now", flush=True)
store.finish(crafted.Ended())
"""


@pytest.mark.parametrize("moment", range(10))
def test_every_row_once_after_a_kill_at_some_moment(tmp_path: Path, moment: int) -> None:
    folder = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder), str(Path(__file__).parent)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "now\n"
    try:
        process.wait(timeout=0.03 * moment)
    except subprocess.TimeoutExpired:
        process.kill()
    process.communicate()
    assert process.returncode in (0, -signal.SIGKILL)
    for _ in range(2):  # the first look takes in, the second finds the same
        ranks = open_recording(folder).ranks
        assert [rank.rank for rank in ranks] == [0, 1, 2, 3]
        assert [len(rank.rows) for rank in ranks] == [80_000] * 4
        assert [[len(worker.rows) for worker in rank.workers] for rank in ranks] == [[4, 8, 12, 16, 20]] * 4
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"rank-{number}.sqlite" for number in range(4)),
        "run.json",
    ]
