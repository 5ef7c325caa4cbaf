"""A launcher killed between any two system calls of its storing leaves every row exactly once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hotloop.record.read import open_recording

#: Stores its own rows, which go on, and those of workers that come and go; says what it wrote.
LAUNCHER = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
import crafted
from hotloop.record import rows as r
from hotloop.record import store
from hotloop.record.store import Store
store.ENOUGH_ROWS = 1  # store at every tick
folder = Path(sys.argv[1])
store = Store(folder)
store.begin(["x"], {})
dead = crafted.gone_pid()
main = crafted.write(store.raw_dir, os.getpid(), steps=1, close=False)
written = 0
for tick in range(10_000):
    for _ in range(700):
        main.row(r.SAVE, 10_000_000 + written, 1, value=written)
        written += 1
    worker = {"role": "worker", "ppid": os.getpid(), "parent_main_pid": os.getpid()}
    crafted.write(store.raw_dir, dead, 20_000_000 + tick, steps=tick % 5, **worker)
    print(f"{written} {tick + 1}", flush=True)  # in one write
    store.take_in()
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
    for _ in range(1 + moment):
        line = process.stdout.readline()
    try:
        process.wait(timeout=0.0007 * moment)
    except subprocess.TimeoutExpired:
        process.kill()
    rest = process.stdout.read().splitlines()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    written, workers = map(int, (rest[-1] if rest else line).split())
    for _ in range(2):  # the second look finds the same
        (rank,) = open_recording(folder).ranks
        values = rank.rows["value"][rank.rows["start"] >= 10_000_000]
        assert len(values) >= written
        np.testing.assert_array_equal(values, np.arange(len(values)))
        sizes = {worker.start_ns - 20_000_000: len(worker.rows) for worker in rank.workers}
        assert sizes.keys() >= set(range(workers))
        assert all(sizes[tick] == 4 * (tick % 5) for tick in range(workers))
