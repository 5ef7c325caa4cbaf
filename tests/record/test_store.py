from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import crafted
import numpy as np
import pytest

from hotloop.errors import UsageError
from hotloop.record import rows as r
from hotloop.record.read import open_recording


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with sqlite3.connect(path) as db:
        found = db.execute(sql).fetchall()
    db.close()
    return found


def test_a_run_ends_as_plain_files_without_anything_raw(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    crafted.write(store.raw_dir, crafted.gone_pid(), steps=5)
    store.take_in()
    store.finish(crafted.Ended(exit_code=3, start_ns=1_000, end_ns=2_000_001_000))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0.sqlite", "run.json"]
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["exit_code"], run["wall_s"], run["complete"]) == (3, 2.0, True)
    assert query(tmp_path / "rank-0.sqlite", "SELECT sum(num_rows) FROM chunks") == [(20,)]
    assert query(tmp_path / "rank-0.sqlite", "SELECT kind FROM notes") == [("process",)]


def test_nothing_is_taken_twice_over_many_ticks_and_nothing_is_lost(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), steps=0, close=False)
    at = 1_000
    for tick in range(30):
        for _ in range(500):
            writer.row(r.FETCH, at, 10, value=tick)
            at += 20
        writer.note("memory", host_rss=tick)
        store.take_in()
    writer.close()
    store.finish(crafted.Ended(pid=crafted.own_pid()))
    (rank,) = open_recording(tmp_path).ranks
    assert rank.rows["start"].tolist() == list(range(1_000, at, 20))
    assert rank.rows["value"].tolist() == [tick for tick in range(30) for _ in range(500)]
    assert [note["host_rss"] for note in rank.notes["memory"]] == list(range(30))


def test_the_raw_files_of_a_process_go_as_soon_as_it_has_ended(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    main = crafted.write(store.raw_dir, crafted.own_pid(), steps=600, close=False)
    crafted.write(store.raw_dir, crafted.gone_pid(), 2_000, role="worker", ppid=crafted.own_pid(), steps=1)
    for _ in range(2):
        store.take_in()
    left = {path.name for path in store.raw_dir.iterdir() if not path.name.startswith(".")}
    assert left == {f"{crafted.own_pid()}-1000.rows", f"{crafted.own_pid()}-1000.notes"}
    assert [member.facts.role for member in store._intake.members] == ["main"]  # epochs start thousands
    main.close()
    store.finish(crafted.Ended(pid=crafted.own_pid()))
    (rank,) = open_recording(tmp_path).ranks
    assert [len(worker.rows) for worker in rank.workers] == [4]


def test_a_process_that_ends_quietly_after_the_last_tick_leaves_nothing_raw(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    process = subprocess.Popen(["sleep", "100"])
    crafted.write(store.raw_dir, process.pid, steps=600)
    for _ in range(3):
        store.take_in()
    process.kill()
    process.wait()
    store.finish(crafted.Ended())
    assert not store.raw_dir.exists()


def test_a_process_whose_pid_means_nothing_here_is_followed_while_it_writes(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)  # a container inside the command has pids of its own
    writer = crafted.write(store.raw_dir, crafted.gone_pid(), steps=600, close=False)
    for tick in range(4):
        store.take_in()
        assert list(store.raw_dir.glob("*.rows"))
        writer.row(r.SAVE, (1 << 40) + tick, 5)
    assert store.living_pids
    writer.close()
    store.finish(crafted.Ended())
    (rank,) = open_recording(tmp_path).ranks
    assert len(rank.rows) == 2404 and not store.raw_dir.exists()


def test_space_of_rows_already_stored_is_given_back_while_the_run_goes_on(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), steps=40_000, close=False)
    (path,) = store.raw_dir.glob("*.rows")
    before = path.stat().st_blocks * 512
    store.take_in()
    after = path.stat().st_blocks * 512
    if before > 3_000_000 and after == before:
        pytest.skip("this file system cannot punch holes")
    assert after < 1_500_000 < before
    writer.row(r.SAVE, 1 << 40, 5)
    writer.close()
    store.finish(crafted.Ended(pid=crafted.own_pid()))
    (rank,) = open_recording(tmp_path).ranks
    assert (len(rank.rows), rank.rows["kind"][-1]) == (160_001, r.SAVE)


def test_the_commands_own_process_ends_when_the_launcher_saw_it_end(tmp_path: Path) -> None:
    store, pid = crafted.begun(tmp_path), crafted.gone_pid()
    crafted.write(store.raw_dir, pid)
    store.take_in()
    store.finish(crafted.Ended(pid=pid, end_ns=1 << 60))
    assert open_recording(tmp_path).ranks[0].end_ns == 1 << 60


def test_two_training_processes_of_one_rank_get_two_files(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    for start in (1_000, 9_000_000_000):
        crafted.write(store.raw_dir, crafted.gone_pid(), start)
        store.take_in()
    store.finish(crafted.Ended())
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == ["rank-0-2.sqlite", "rank-0.sqlite"]


def test_an_agent_that_only_imported_torch_is_kept_apart_and_is_no_rank(tmp_path: Path) -> None:
    store, agent = crafted.begun(tmp_path), crafted.gone_pid()
    crafted.write(store.raw_dir, agent, steps=0, rows=[(r.SAMPLE, 5, 10), (r.LOG, 5, 10)])
    store.take_in()
    crafted.write(store.raw_dir, crafted.gone_pid(), 2_000, ppid=agent, rank=0)
    crafted.write(store.raw_dir, crafted.gone_pid(), 2_000, ppid=agent, rank=1)
    store.take_in()
    store.finish(crafted.Ended())
    names = sorted(path.name for path in tmp_path.glob("*.sqlite"))
    assert names == [f"other-{agent}.sqlite", "rank-0.sqlite", "rank-1.sqlite"]
    assert [rank.rank for rank in open_recording(tmp_path).ranks] == [0, 1]


def test_a_process_that_comes_to_work_late_ends_under_its_ranks_name(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    samples = [(r.SAMPLE, at, 10) for at in range(60_000)]  # more than is held back for a silent process
    writer = crafted.write(store.raw_dir, crafted.own_pid(), steps=0, rows=samples, close=False)
    store.take_in()
    assert [path.name for path in tmp_path.glob("*.sqlite")] == [f"other-{crafted.own_pid()}.sqlite"]
    writer.row(r.BACKWARD, 1 << 40, 5)
    writer.close()
    store.take_in()
    store.finish(crafted.Ended(pid=crafted.own_pid()))
    assert [path.name for path in tmp_path.glob("*.sqlite")] == ["rank-0.sqlite"]
    assert [len(rank.rows) for rank in open_recording(tmp_path).ranks] == [60_001]


def test_traces_of_the_profiler_move_beside_the_report(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    crafted.write(store.raw_dir, crafted.gone_pid())
    (store.raw_dir / "7.trace.json").write_text("{}")
    store.finish(crafted.Ended())
    assert (tmp_path / "7.trace.json").exists() and not store.raw_dir.exists()


def test_a_training_process_that_outlives_the_command_is_named(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), close=False)
    assert store.living_pids == ()
    store.take_in()
    assert store.living_pids == (crafted.own_pid(),)
    store.finish(crafted.Ended(pid=crafted.gone_pid()))
    (warning,) = open_recording(tmp_path).warnings
    assert "still running" in warning
    writer.row(r.SAVE, 1 << 40, 5)
    writer.close()
    (rank,) = open_recording(tmp_path).ranks  # whoever looks next reads what came later
    assert rank.rows["kind"][-1] == r.SAVE


def test_facts_learned_later_are_part_of_the_machine(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    store.add_machine(gpus=[{"name": "g"}])
    store.finish(crafted.Ended())
    assert open_recording(tmp_path).machine == {"cores": 2, "gpus": [{"name": "g"}]}


def test_system_samples_come_back_as_columns_in_seconds_since_the_start(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
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


def test_a_folder_that_cannot_be_made_is_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="file") as caught:
        crafted.begun(tmp_path / "file" / "run")
    assert caught.value.hint and "--out" in caught.value.hint
