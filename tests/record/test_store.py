from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import crafted
import numpy as np
import pytest

from hotloop.errors import UsageError
from hotloop.record import rows as r
from hotloop.record.read import open_recording
from hotloop.record.store import Store


def begun(folder: Path) -> Store:
    store = Store(folder)
    store.begin(["python", "train.py"], {"cores": 2})
    return store


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute(sql).fetchall()
    db.close()
    return found


def test_a_run_ends_as_plain_files_without_anything_raw(tmp_path: Path) -> None:
    store = begun(tmp_path)
    crafted.write(store.raw_dir, crafted.gone_pid(), steps=5)
    store.finish(crafted.Ended(exit_code=3, start_ns=1_000, end_ns=2_000_001_000))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.sqlite", "run.json"]
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["exit_code"], run["wall_s"], run["complete"]) == (3, 2.0, True)
    assert query(tmp_path / "rank-0.sqlite", "SELECT sum(num_rows) FROM chunks") == [(20,)]
    assert query(tmp_path / "rank-0.sqlite", "SELECT kind FROM notes") == [("process",)]


def test_the_commands_own_process_ends_when_the_launcher_saw_it_end(tmp_path: Path) -> None:
    store = begun(tmp_path)
    pid = crafted.gone_pid()
    crafted.write(store.raw_dir, pid)
    store.finish(crafted.Ended(pid=pid, end_ns=1 << 60))
    assert open_recording(tmp_path).ranks[0].end_ns == 1 << 60


def test_two_training_processes_of_one_rank_get_two_files(tmp_path: Path) -> None:
    store = begun(tmp_path)
    for start in (1_000, 9_000_000_000):
        crafted.write(store.raw_dir, crafted.gone_pid(), start)
        store.finish(crafted.Ended())
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == ["rank-0-2.sqlite", "rank-0.sqlite"]


def test_an_agent_that_only_imported_torch_is_kept_apart_and_is_no_rank(tmp_path: Path) -> None:
    store = begun(tmp_path)
    agent = crafted.gone_pid()
    crafted.write(store.raw_dir, agent, steps=0, rows=[(r.SAMPLE, 5, 10), (r.LOG, 5, 10)])
    crafted.write(store.raw_dir, crafted.gone_pid(), 2_000, ppid=agent, rank=0)
    crafted.write(store.raw_dir, crafted.gone_pid(), 2_000, ppid=agent, rank=1)
    store.finish(crafted.Ended())
    names = sorted(path.name for path in tmp_path.glob("*.sqlite"))
    assert names == [f"other-{agent}.sqlite", "rank-0.sqlite", "rank-1.sqlite"]
    assert [rank.rank for rank in open_recording(tmp_path).ranks] == [0, 1]


def test_traces_of_the_profiler_move_beside_the_report(tmp_path: Path) -> None:
    store = begun(tmp_path)
    crafted.write(store.raw_dir, crafted.gone_pid())
    (store.raw_dir / "7.trace.json").write_text("{}")
    store.finish(crafted.Ended())
    assert (tmp_path / "7.trace.json").exists()
    assert not store.raw_dir.exists()


def test_a_training_process_that_outlives_the_command_is_named(tmp_path: Path) -> None:
    store = begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), close=False)
    assert store.progress == (crafted.own_pid(), 3)
    store.finish(crafted.Ended(pid=crafted.gone_pid()))
    (warning,) = open_recording(tmp_path).warnings
    assert "still running" in warning
    writer.row(r.SAVE, 1 << 40, 5)
    writer.close()
    (rank,) = open_recording(tmp_path).ranks  # what came later is taken in by whoever looks next
    assert rank.rows["kind"][-1] == r.SAVE


def test_facts_learned_later_are_part_of_the_machine(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.add_machine(gpus=[{"name": "g"}])
    store.finish(crafted.Ended())
    assert open_recording(tmp_path).machine == {"cores": 2, "gpus": [{"name": "g"}]}


def test_system_samples_come_back_as_columns_in_seconds_since_the_start(tmp_path: Path) -> None:
    store = begun(tmp_path)
    origin = json.loads((tmp_path / "run.json").read_text())["start_ns"]
    for tick in range(4):
        at = origin + 1_500_000 + tick * 500_000_000
        machine = {"t_ns": at, "memory_available_bytes": 5e9} | ({"cpu_ratio": 0.5} if tick else {})
        store.take_in(([machine], [{"t_ns": at, "pid": 7.0 + tick % 2, "rss_bytes": 1e9 + tick}]))
    store.finish(crafted.Ended(start_ns=origin + 1_500_000, end_ns=origin + 3_000_000_000))
    recording = open_recording(tmp_path)
    np.testing.assert_allclose(recording.system["t_s"], [0, 0.5, 1.0, 1.5], atol=1e-9)
    np.testing.assert_array_equal(recording.system["cpu_ratio"], [np.nan, 0.5, 0.5, 0.5])
    assert sorted(recording.process_system) == [7, 8]
    np.testing.assert_allclose(recording.process_system[8]["rss_bytes"], [1e9 + 1, 1e9 + 3])
    np.testing.assert_allclose(recording.process_system[8]["t_s"], [0.5, 1.5], atol=1e-9)


def test_the_steps_table_is_plain_sql(tmp_path: Path) -> None:
    store = begun(tmp_path)
    pid = crafted.gone_pid()
    crafted.write(store.raw_dir, pid)
    store.finish(crafted.Ended())
    columns = {
        "start_s": np.array([0.5, 1.0]),
        "data_wait": np.array([0.25, np.nan]),
        "samples": np.array([32.0, np.nan]),
        "steady": np.array([False, True]),
        "end_ns": np.array([7, 8]),
    }
    for _ in range(2):  # measuring again replaces the table
        assert Store(tmp_path).write_steps(0, columns, pid=pid)
    assert query(tmp_path / "rank-0.sqlite", "SELECT * FROM steps") == [
        (0, 500_000_000, 250_000_000, 32.0, 0, 7),
        (1, 1_000_000_000, None, None, 1, 8),
    ]
    found = query(tmp_path / "rank-0.sqlite", "SELECT start_ns, data_wait_ns FROM steps WHERE steady")
    assert found == [(1_000_000_000, None)]
    assert not Store(tmp_path).write_steps(1, columns)


def test_a_folder_with_a_recording_and_one_in_use_are_refused(tmp_path: Path) -> None:
    store = begun(tmp_path / "a")
    with pytest.raises(UsageError, match="in use"):
        begun(tmp_path / "a")
    store.finish(crafted.Ended())
    with pytest.raises(UsageError, match="already holds a recording"):
        begun(tmp_path / "a")


def test_a_folder_that_cannot_be_made_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file") as caught:
        begun(tmp_path / "file" / "run")
    assert caught.value.hint and "--out" in caught.value.hint
