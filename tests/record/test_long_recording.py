"""A long recording is read, measured and published piece by piece: memory holds one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import crafted
import numpy as np
import pytest

from hotloop.record import rows as r
from hotloop.record.read import open_recording
from hotloop.record.recording import ROW_DTYPE

#: One step of the synthetic run: kind, duration (ns), value, object, flags.
STEP = (
    (r.FETCH, 80_000, 8, 1, 0),
    (r.FORWARD, 120_000, 0, 1, r.FORWARD_GRAD | r.FORWARD_TRAINING | r.FORWARD_PARAMS),
    (r.FORWARD, 30_000, 0, 2, r.FORWARD_GRAD | r.FORWARD_TRAINING),
    (r.ZERO_GRAD, 10_000, 0, 0, 0),
    (r.BACKWARD, 150_000, 0, 0, 0),
    (r.LOSS, 0, 7, 0, 0),
    (r.OPTIMIZER, 60_000, 0, 1, 0),
)
#: Bytes of a further step: what it is measured into, twice while the pieces are joined, and what a rule or a
#: chart makes of it for a moment. Its rows, 168 bytes, lie in a file.
LIMIT_BYTES = 300

REPORT = r"""
import re, sys
from pathlib import Path
from hotloop.flow.examine import examine, publish, read
folder = Path(sys.argv[1])
examination = examine(read(folder))
publish(examination, folder)
# Not ru_maxrss: that one is inherited from whoever started this process.
peak = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]
print(examination.ranks[0].num_steps, int(peak) * 1024)
"""


def recorded(folder: Path, num_steps: int) -> Path:
    """The recording of a plain loop of so many steps of half a millisecond."""
    store = crafted.begun(folder)
    pid = crafted.gone_pid()
    notes = [
        {"kind": "loader", "id": 1, "where": 0, "class": "DataLoader", "batch_size": 8, "num_workers": 0},
        {"kind": "iterator", "id": 1, "loader": 1, "workers": []},
    ]
    crafted.write(store.raw_dir, pid, steps=0, rows=[(r.ITER, 2_000, 5_000)], notes=notes)
    rows = np.zeros((num_steps, len(STEP)), ROW_DTYPE)
    start = np.arange(1, num_steps + 1, dtype=np.uint64) * np.uint64(500_000)
    for at, (kind, duration, value, obj, flags) in enumerate(STEP):
        column = rows[:, at]
        column["kind"], column["dur"], column["value"], column["obj"] = kind, duration, value, obj
        column["flags"], column["start"] = flags, start
        start = start + np.uint64(duration + 2_000)
    with next(store.raw_dir.glob("*.rows")).open("ab") as file:
        file.write(rows.tobytes())
    store.finish(crafted.Ended(pid=pid, end_ns=(num_steps + 2) * 500_000))
    return folder


def peak(folder: Path) -> tuple[int, int]:
    """Steps that the report of a recording has, and the most memory (bytes) that making it took."""
    # Arrays of this size lie apart in a long recording, and are given back as soon as they are not needed.
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", REPORT, str(folder)], env=env, capture_output=True, text=True, check=True
    )
    steps, size = done.stdout.split()
    return int(steps), int(size)


@pytest.mark.nightly
def test_what_a_further_step_takes_is_bounded(tmp_path: Path) -> None:
    # Two and three pieces, full ones.
    short = peak(recorded(tmp_path / "short", 299_000))
    long = peak(recorded(tmp_path / "long", 449_000))
    assert (short[0], long[0]) == (299_000, 449_000)
    assert (long[1] - short[1]) / (long[0] - short[0]) < LIMIT_BYTES


def test_the_rows_of_a_long_recording_are_all_there_in_order(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "run", 200_000)
    open_recording(folder)  # takes in what is left in raw
    before = sorted(folder.iterdir())
    (process,) = open_recording(folder).ranks
    assert len(process.rows) == 1 + 200_000 * len(STEP)
    starts = process.rows["start"].astype(np.int64)
    assert (np.diff(starts) >= 0).all()
    assert np.bincount(process.rows["kind"])[r.OPTIMIZER] == 200_000
    assert sorted(folder.iterdir()) == before  # where the rows lie meanwhile has no name
