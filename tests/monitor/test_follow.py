"""Reading on: what a look reads, and that nothing is missed or counted twice."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from tests.monitor.lives import eventually, long
from tests.record import crafted

from hotloop.cli import watch
from hotloop.cli.main import main
from hotloop.cli.watch import report_of
from hotloop.errors import RecordingError
from hotloop.monitor import follow
from hotloop.monitor.follow import MOST_ROWS, Follower
from hotloop.monitor.samples import Samples
from hotloop.monitor.screen import line
from hotloop.monitor.snapshot import Watched
from hotloop.monitor.source import states
from hotloop.record import raw
from hotloop.record import rows as r
from hotloop.record.read import open_recording
from hotloop.record.recording import ROW_DTYPE
from hotloop.record.samples import SystemFile
from hotloop.record.schema import CHUNK_ROWS


def test_a_look_at_a_long_run_reads_its_end_and_little_else(tmp_path: Path) -> None:
    folder = long(tmp_path / "run", 400_000)
    follower = Follower(folder)
    follower.look()
    assert follower.rows_read <= MOST_ROWS + 50 * CHUNK_ROWS < 4 * 400_000 / 2
    (one,) = follower.members.values()
    count, exact = one.steps
    assert not exact and count == pytest.approx(400_000, rel=0.01)
    assert len(one.history) < 600
    before = follower.rows_read
    follower.look()
    assert follower.rows_read == before
    (kept,) = follower.recording(rows=True).ranks
    assert kept.cuts and len(kept.rows) <= MOST_ROWS + CHUNK_ROWS
    assert kept.rows["start"][-1] == open_recording(folder).ranks[0].rows["start"][-1]
    assert [note["loader"] for note in kept.notes["iterator"]] == [1]


def test_what_notes_say_of_loaders_long_gone_is_forgotten() -> None:
    one = follow.Followed(facts=raw.Facts(key="1-1", pid=1, start_ns=0))
    one.stored_notes = [{"note": k, "id": n, "loader": n} for k in ("loader", "iterator") for n in range(200)]
    one.iterators = np.array([(0, 0, 7, 0, 0, 0, 0, r.ITER), (0, 0, 0, 0, 9, 0, 0, r.FETCH)], ROW_DTYPE)
    one.forget_loaders()
    assert [note["id"] for note in one.notes] == 2 * [7, 9, *range(136, 200)]


def test_nothing_is_missed_or_counted_twice_while_rows_move_into_the_store(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), steps=0, close=False)
    follower = Follower(tmp_path)
    at = 1_000
    for tick in range(40):
        for _ in range(125):
            for kind, duration in crafted.STEP:
                writer.row(kind, at, duration, value=8)
                at += duration + 1_000
        writer.note("memory", host_rss=tick)
        if tick % 3:
            store.take_in()
        follower.look()
        (one,) = follower.members.values()
        assert one.steps[0] in (125 * (tick + 1) - 1, 125 * (tick + 1))  # the newest row waits
    writer.close()
    store.finish(crafted.Ended(pid=crafted.own_pid()))
    follower.look()
    (mine,), (whole,) = follower.recording(rows=True).ranks, open_recording(tmp_path).ranks
    assert (mine.rows == whole.rows).all() and len(mine.rows) == len(whole.rows)
    assert mine.notes == whole.notes and not mine.cuts
    assert sum(point.steps for point in one.history) == 40 * 125 - 1


def test_workers_that_are_long_gone_are_not_kept(tmp_path: Path) -> None:
    folder = long(tmp_path / "run", 200_000)
    store = crafted.begun(folder)
    for number in range(3):
        crafted.write(store.raw_dir, crafted.gone_pid(), 2_000 + number, role="worker", steps=1)
    store.finish(crafted.Ended(end_ns=10**11))
    for path in folder.glob("other-*.sqlite"):
        with sqlite3.connect(path) as db:
            db.execute("UPDATE processes SET end_ns = 3000")
        db.close()
    follower = Follower(folder)
    follower.look()
    follower.look()
    assert [one.facts.role for one in follower.members.values()] == ["main"]


def test_a_change_of_speed_is_marked(tmp_path: Path) -> None:
    at, rows = 10**9, []
    for number in range(12_000):
        for kind, duration in crafted.STEP:
            rows.append((kind, at, duration))
            at += duration * (1 if number < 8_000 else 2)
    crafted.finished(tmp_path, end_ns=at, steps=0, rows=rows)
    watched = Watched(tmp_path, report_of)
    found = watched.snapshot()
    (change,) = found["speed"]["changes"]
    assert change["before"] / change["after"] == pytest.approx(2, rel=0.1)
    assert change["t_s"] == pytest.approx(1 + 8_000 * 480e-6, rel=0.1)
    assert [chart["marks"][0]["words"] for chart in found["charts"] if chart["id"] == "throughput"] == [
        "2,083 → 1,042 steps/s"
    ]


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="holds no hotloop recording"):
        Follower(tmp_path).look()


def test_steps_are_those_of_the_report_where_gradients_are_accumulated(tmp_path: Path) -> None:
    at, rows = 10**9, [(r.ITER, 10**9 - 10_000, 5_000)]
    for number in range(800):
        for kind, duration in crafted.STEP[: 4 if number % 4 == 3 else 3]:
            rows.append((kind, at, duration))
            at += duration + 1_000
    iterator = {"kind": "iterator", "id": 0, "loader": 1, "workers": []}
    crafted.finished(tmp_path, end_ns=at, steps=0, rows=rows, notes=[iterator])
    (*_, last) = states(tmp_path, report_of)
    assert last["steps"] == {"count": 800, "exact": True, "quiet_s": None}
    assert last["last"] and last["diagnosis"]["num_steps"] == 800


def test_start_up_is_no_time_of_steps(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    at, rows = 10**9, [(r.FORWARD, 1_000, 5_000), (r.ITER, 10**9 - 10_000, 5_000)]
    for _ in range(1_000):
        for kind, duration in crafted.STEP:
            rows.append((kind, at, duration))
            at += duration
    crafted.write(store.raw_dir, crafted.gone_pid(), steps=0, rows=rows)
    follower = Follower(tmp_path)
    store.take_in()
    follower.look()
    (one,) = follower.members.values()
    seen_s = sum(point.seen_ns for point in one.history) / 1e9
    assert sum(point.steps for point in one.history) / seen_s == pytest.approx(1 / 480e-6, rel=1e-3)
    store.finish(crafted.Ended(end_ns=at))
    (*_, last) = states(tmp_path, report_of)
    report = report_of(open_recording(tmp_path))["throughput"]
    assert last["speed"]["steps_per_s"] == pytest.approx(report["steps_per_s"], rel=1e-3)
    assert last["speed"]["values"] == pytest.approx([1 / 480e-6] * len(last["speed"]["values"]), rel=0.02)


def test_rows_that_a_killed_launcher_left_and_nobody_keeps_are_reckoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = crafted.begun(tmp_path)
    crafted.write(store.raw_dir, crafted.gone_pid(), steps=40_000)
    monkeypatch.setattr(follow, "MOST_ROWS", 1 << 10)
    monkeypatch.setattr(raw, "LIMIT", 1 << 13)
    follower = Follower(tmp_path)
    follower.look()
    (one,) = follower.members.values()
    count, exact = one.steps
    assert not exact and count == pytest.approx(40_000, rel=0.01)


def test_a_diagnosis_without_steps_is_not_kept_once_steps_are_there(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), steps=0, close=False)
    for number in range(2_000):  # much before the first step
        writer.row(r.SYNC, 1_000 + number, 1)
    watched = Watched(tmp_path, report_of)
    found = eventually(lambda: (now := watched.snapshot())["diagnosis"] and now)
    assert found["diagnosis"]["num_steps"] == 0 == found["steps"]["count"]
    at = 10**9
    for _ in range(20):
        for kind, duration in crafted.STEP:
            writer.row(kind, at, duration)
            at += duration
    found = watched.snapshot()
    assert found["steps"]["count"] >= 19 and found["diagnosis"] is None
    assert "too early to tell" in line(found)
    found = eventually(lambda: (now := watched.snapshot())["diagnosis"] and now)
    assert found["diagnosis"]["num_steps"] >= 19
    writer.close()


def test_what_fails_is_said_and_the_looks_go_on(tmp_path: Path) -> None:
    folder = long(tmp_path / "run", 100)
    db = sqlite3.connect(folder / "system.sqlite")
    with db:
        db.execute("UPDATE machine SET cpu_ratio = '<b>x'")
    db.close()

    def failing(recording: object) -> dict[str, object]:
        raise ZeroDivisionError("by\x1bzero")

    watched = Watched(folder, failing)
    found = eventually(lambda: (now := watched.snapshot())["diagnosis_failed"] and now)
    assert found["diagnosis_failed"] == "diagnosis failed: ZeroDivisionError: by\\x1bzero"
    assert found["steps"]["count"] == 100 and found["machine"]["cpu_ratio"] is None
    assert open_recording(folder).system["cpu_ratio"].size


def test_workers_that_come_and_go_take_no_more_and_more(tmp_path: Path) -> None:
    path = tmp_path / "system.sqlite"
    samples, file = Samples(path), SystemFile(path)
    for second in range(3000):  # a worker of its own every second, beside the training
        file.add([], [{"pid": pid, "t_ns": second * 10**9, "cpu_s": second} for pid in (1, 100 + second)])
        if second % 500 == 499:
            samples.read_on()
    _, processes = samples.columns()
    assert len(processes) <= 1024 and 3099 in processes
    assert processes[1]["t_s"][[0, -1]].tolist() == [0, 2999]
    file.close()


def test_a_merged_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": 1, "complete": true, "parts": [{"folder": "a"}]}')
    with pytest.raises(RecordingError, match="merged run") as caught:
        next(states(tmp_path, report_of))
    assert "hotloop report" in str(caught.value.hint)


def test_lines_say_what_changed_and_end_when_nobody_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_GONE_S", 0.5)
    assert main(["watch", str(long(tmp_path / "run", 100))]) == 0
    said = capsys.readouterr()
    lines = [one for one in said.out.splitlines() if not one.startswith("  ")]
    assert 1 <= len(lines) <= 3 and all("hotloop run writes no more" in one for one in lines)
    assert sum("100 steps" in one for one in lines) == len(lines) and "it was killed" in said.err
