"""A run of many ranks: rows that stay on disk, and ranks measured in children, make the same report."""

from __future__ import annotations

from pathlib import Path

import crafted
import numpy as np
import pytest

from hotloop.flow.examine import build_report, examine
from hotloop.record import rows as r
from hotloop.record.read import open_recording
from hotloop.record.recording import Later
from hotloop.report import json


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three ranks of 200 steps, each with an iterator that only its row tells of."""
    folder = tmp_path_factory.mktemp("run")
    store = crafted.begun(folder)
    for rank in range(3):
        about = {"rank": rank, "world_size": 3, "argv": ["train.py"]}
        writer = crafted.write(store.raw_dir, crafted.gone_pid(), 1_000, steps=200, close=False, **about)
        writer.row(r.ITER, 500, 100, value=1, obj=1)
        writer.close()
    store.finish(crafted.Ended(start_ns=1_000))
    return folder


def test_rows_that_stay_on_disk_are_the_same(run: Path) -> None:
    whole, later = open_recording(run), open_recording(run, room=0)
    assert all(isinstance(vars(rank)["rows"], Later) for rank in later.ranks)
    for one, other in zip(whole.ranks, later.ranks, strict=True):
        assert one.num_rows == other.num_rows == 801
        assert np.array_equal(one.rows, other.rows)
        assert one.notes == other.notes
        assert (one.rank, one.end_ns) == (other.rank, other.end_ns)


@pytest.mark.parametrize("dies", [False, True])
def test_ranks_measured_in_children_make_the_same_report(
    run: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    expected = json.render(build_report(examine(open_recording(run))))
    monkeypatch.setattr("hotloop.flow.examine._MANY_ROWS", 0)
    monkeypatch.setattr("hotloop.flow.examine.usable_cores", lambda: 2.0)
    monkeypatch.setattr("threading.active_count", lambda: 1)
    if dies:
        monkeypatch.setattr("hotloop.flow.examine._begin", lambda *_: __import__("os")._exit(9))
    assert json.render(build_report(examine(open_recording(run, room=0)))) == expected


def test_of_many_ranks_those_that_stand_out_are_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_WHOLE_ROWS": 0, "_GLIMPSE": 100, "_WHOLE_RANKS": 2}.items():
        monkeypatch.setattr(f"hotloop.flow.examine.{name}", value)
    monkeypatch.setattr("hotloop.record.schema.CHUNK_ROWS", 32)
    store = crafted.begun(tmp_path / "run")
    for rank in range(9):  # with pids that no process has
        crafted.write(store.raw_dir, 5_000_000 + rank, 1_000, steps=200, rank=rank, world_size=9)
    store.finish(crafted.Ended(start_ns=1_000))
    found = examine(open_recording(tmp_path / "run", room=0))
    partly = [steps for steps in found.ranks if steps.partly]
    assert 3 <= len(partly) < 9 and not found.ranks[0].partly
    assert all(20 < steps.num_steps < 100 for steps in partly)
    assert [steps.step_s for steps in partly] == pytest.approx(
        [found.ranks[0].step_s] * len(partly), rel=0.05
    )
    assert f"full evidence of {9 - len(partly)} of 9 ranks" in str(found.recording.warnings)
