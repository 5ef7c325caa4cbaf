from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import perf_counter_ns

import crafted
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotloop.errors import RecordingError
from hotloop.record import read
from hotloop.record import rows as r
from hotloop.record.fields import parse_note
from hotloop.record.read import open_recording
from hotloop.record.recording import ROW_DTYPE, Recording
from hotloop.record.store import Store

TESTS = Path(__file__).parent


def killed(folder: Path, *, take_in: bool = True, steps: int = 5) -> tuple[Path, int]:
    """A run whose launcher was killed: part of it in SQLite with its journal, the rest in raw files."""
    code = f"""
import os, sys
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
from time import perf_counter_ns
import crafted
from hotloop.record import rows as r
from hotloop.record.fields import parse_note
store = crafted.begun(Path({str(folder)!r}))
writer = crafted.write(store.raw_dir, os.getpid(), steps=600 if {take_in} else 0, close=False)
if {take_in}:
    store.take_in()
for step in range({steps}):
    writer.row(r.SAVE, (1 << 40) + step, 5)
writer.note("exit", reason="exit")
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert done.returncode == -signal.SIGKILL
    return folder, 600 * len(crafted.STEP) * take_in + steps


def rows_of(recording: Recording) -> int:
    return sum(len(rank.rows) for rank in recording.ranks)


def test_a_finished_run_says_what_was_run_and_how_it_ended(tmp_path: Path) -> None:
    recording = open_recording(crafted.finished(tmp_path))
    assert recording.command == ("python", "train.py")
    assert (recording.exit_code, recording.complete) == (0, True)
    assert recording.wall_s == pytest.approx(5.0, abs=1e-5)
    assert recording.machine == {"cores": 2}
    (rank,) = recording.ranks
    assert rank.first("process")["pid"] == rank.pid
    assert np.all(np.diff(rank.rows["start"].astype(np.int64)) >= 0)


def test_an_outer_row_comes_before_the_rows_inside_it(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    crafted.write(raw, 5, steps=0, rows=[(r.BACKWARD, 100, 10), (r.OPTIMIZER, 100, 50), (r.FETCH, 50, 10)])
    (rank,) = open_recording(tmp_path).ranks
    assert rank.rows["kind"].tolist() == [r.FETCH, r.OPTIMIZER, r.BACKWARD]


def test_one_file_opens_alone(tmp_path: Path) -> None:
    crafted.finished(tmp_path / "run")
    alone = shutil.copy(tmp_path / "run" / "rank-0.sqlite", tmp_path / "sent.sqlite")
    assert rows_of(open_recording(Path(alone))) == 20
    assert rows_of(open_recording(tmp_path / "run" / "rank-0.sqlite")) == 20


def test_a_command_that_never_reached_torch_is_a_recording_without_ranks(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.begin(["true"], {})
    store.finish(crafted.Ended())
    recording = open_recording(tmp_path)
    assert recording.ranks == ()
    assert recording.exit_code == 0


@pytest.mark.parametrize("take_in", [False, True])
def test_what_a_killed_launcher_left_is_read_every_time(tmp_path: Path, take_in: bool) -> None:
    folder, num_rows = killed(tmp_path / "run", take_in=take_in)
    for _ in range(2):
        recording = open_recording(folder)
        assert rows_of(recording) == num_rows
        assert (recording.complete, recording.exit_code) == (False, None)
        assert recording.ranks[0].last("exit")["reason"] == "exit"
    assert list((folder / "raw").glob("*.rows"))


def test_a_run_that_goes_on_is_read_without_disturbing_it(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.own_pid(), steps=600, close=False)
    store.take_in()
    for _ in range(3):
        writer.row(r.SAVE, 1 << 40, 5)
    assert rows_of(open_recording(tmp_path)) == 2403
    writer.close()
    store.take_in()
    store.finish(crafted.Ended(pid=crafted.own_pid()))
    assert rows_of(open_recording(tmp_path)) == 2403


@pytest.fixture(scope="module")
def cut_material(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    raw = tmp_path_factory.mktemp("material")
    crafted.write(raw, 5, steps=4, notes=[{"kind": "memory", "host_rss": n} for n in range(3)])
    return (raw / "5-1000.rows").read_bytes(), (raw / "5-1000.notes").read_bytes()


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_raw_files_cut_at_any_byte_open(
    tmp_path: Path, cut_material: tuple[bytes, bytes], data: st.DataObject
) -> None:
    rows, notes = cut_material
    rows_cut = data.draw(st.integers(0, len(rows)))
    notes_cut = data.draw(st.integers(0, len(notes)))
    raw = tmp_path / "raw"
    raw.mkdir(exist_ok=True)
    (raw / "5-1000.rows").write_bytes(rows[:rows_cut])
    (raw / "5-1000.notes").write_bytes(notes[:notes_cut])
    recording = open_recording(tmp_path)
    assert rows_of(recording) == rows_cut // r.ROW.size
    kept = sum(len(found) for found in recording.ranks[0].notes.values())
    assert kept == notes[:notes_cut].count(b"\n")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cut=st.floats(0, 1))
def test_a_file_cut_at_any_byte_opens_or_is_named(tmp_path: Path, cut: float) -> None:
    whole = tmp_path / "whole"
    if not whole.exists():
        crafted.finished(whole, steps=3000)
    data = (whole / "rank-0.sqlite").read_bytes()
    cut_file = tmp_path / "cut.sqlite"
    cut_file.write_bytes(data[: int(cut * len(data))])
    try:
        recording = open_recording(cut_file)
    except RecordingError as error:
        assert "cut.sqlite" in error.message
        assert error.hint
    else:
        assert rows_of(recording) <= 12_000


def test_empty_foreign_and_missing_folders_are_named_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "train.py").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.sqlite").write_text("no database " * 100)
    for name in ("foreign", "empty", "missing", "text.sqlite"):
        with pytest.raises(RecordingError, match=name) as caught:
            open_recording(tmp_path / name)
        assert caught.value.hint


def test_a_newer_recording_says_upgrade(tmp_path: Path) -> None:
    crafted.finished(tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**run, "schema": 99}))
    with pytest.raises(RecordingError, match="newer") as caught:
        open_recording(tmp_path)
    assert "upgrade" in str(caught.value.hint)


@pytest.mark.parametrize("text", ["{", "[]", "", '{"schema": "x"}'])
def test_a_damaged_run_file_is_named(tmp_path: Path, text: str) -> None:
    crafted.finished(tmp_path)
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordingError, match=r"run\.json"):
        open_recording(tmp_path)


def test_a_file_that_was_only_begun_is_no_obstacle(tmp_path: Path) -> None:
    crafted.write(tmp_path / "raw", crafted.gone_pid())
    (tmp_path / "rank-0.sqlite").touch()
    (tmp_path / "system.sqlite").touch()
    assert rows_of(open_recording(tmp_path)) == 12
    with pytest.raises(RecordingError, match="rank-0"):
        open_recording(tmp_path / "rank-0.sqlite")


def test_one_damaged_rank_among_others_is_a_warning_and_alone_an_error(tmp_path: Path) -> None:
    crafted.finished(tmp_path)
    (tmp_path / "rank-1.sqlite").write_bytes(b"junk" * 1000)
    recording = open_recording(tmp_path)
    assert rows_of(recording) == 20
    assert any("rank-1.sqlite" in warning for warning in recording.warnings)
    (tmp_path / "rank-0.sqlite").unlink()
    with pytest.raises(RecordingError, match=r"rank-1\.sqlite"):
        open_recording(tmp_path)


def test_damaged_system_samples_are_a_warning_and_the_steps_remain(tmp_path: Path) -> None:
    crafted.finished(tmp_path)
    (tmp_path / "system.sqlite").write_bytes(b"junk" * 1000)
    recording = open_recording(tmp_path)
    assert rows_of(recording) == 20
    assert any("system.sqlite" in warning for warning in recording.warnings)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 30), max_size=60), st.integers(2, 9))
def test_rows_are_sorted_in_runs_as_they_would_be_at_once(late: list[int], at_once: int) -> None:
    rows = np.zeros(len(late), ROW_DTYPE)
    rows["start"] = [max(0, 3 * number - by) for number, by in enumerate(late)]
    rows["value"] = np.arange(len(rows))  # the order in which they were written
    backwards = rows[::-1]
    wanted = backwards[np.argsort(backwards["start"], kind="stable")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_SORT_ROWS", at_once)
        np.testing.assert_array_equal(read._sorted([rows.copy()] if len(rows) else [], None), wanted)


def test_iterators_that_were_not_noted_are_like_the_one_before_of_their_loader(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    writer = crafted.write(store.raw_dir, crafted.gone_pid(), close=False)
    for number, loader, batches in (
        (1, 1, 5),
        (2, 2, 7),
        (3, 1, 0),
        (4, 2, 0),
        (5, 1, 6),
        (6, 1, 0),
        (7, 3, 0),
    ):
        if batches:
            fields = {"workers": [], "pinning": False, "num_batches": batches}
            writer.note("iterator", id=number, loader=loader, site=number, **fields)
        writer.row(r.ITER, perf_counter_ns(), 50, loader, 10 + number, number)
    writer.close()
    store.finish(crafted.Ended(end_ns=perf_counter_ns()))
    (rank,) = open_recording(tmp_path).ranks
    found = [
        (note["id"], note["loader"], note.get("num_batches"), note["site"]) for note in rank.notes["iterator"]
    ]
    like = [(1, 1, 5, 1), (2, 2, 7, 2), (3, 1, 5, 13), (4, 2, 7, 14), (5, 1, 6, 5), (6, 1, 6, 16)]
    assert found == [*like, (7, 3, None, 17)]  # of the last one's loader no note is left
    starts = {int(row["obj"]): int(row["start"]) for row in rank.rows[rank.rows["kind"] == r.ITER]}
    assert all(note["t"] == starts[note["id"]] + 50 for note in rank.notes["iterator"] if note["site"] > 10)


@pytest.mark.parametrize("name", ["run.json", "rank-0.sqlite", "rank-0.sqlite-wal", "raw/5-5.rows"])
def test_pipes_in_the_place_of_files_keep_nobody_waiting(tmp_path: Path, name: str) -> None:
    crafted.finished(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    os.mkfifo(tmp_path / name)
    try:
        assert rows_of(open_recording(tmp_path)) == 20
    except RecordingError as error:
        assert error.hint and name.partition("-wal")[0] in error.message


ANYTHING = st.recursive(
    st.sampled_from([None, True, -1, 3.5, 1 << 63, 10**400, float("inf"), "", "a\0b", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["len", "x"]), inner),
)


@settings(max_examples=200, deadline=None)
@given(kind=st.sampled_from(["loader", "iterator", "process", "growth", "torch"]), data=st.data())
def test_a_field_of_a_note_has_its_type_or_is_none(kind: str, data: st.DataObject) -> None:
    names = st.sampled_from(
        ["id", "loader", "workers", "dataset", "num_workers", "env", "lines", "steps", "pid"]
    )
    fields = data.draw(st.dictionaries(names, ANYTHING))
    note, whole = parse_note(json.dumps({"note": kind, "t": 1, **fields}))
    if note is None:
        return
    assert note["t"] == 1 and (not whole or note.keys() >= fields.keys())
    for name, wanted in (
        ("id", int),
        ("loader", int),
        ("workers", list),
        ("env", dict),
        ("num_workers", int),
    ):
        assert isinstance(note.get(name), wanted | None)
    if isinstance(note.get("dataset"), dict):
        assert isinstance(note["dataset"].get("len"), int | None)


def test_a_field_of_the_run_that_is_damaged_is_a_warning(tmp_path: Path) -> None:
    crafted.finished(tmp_path)
    run = json.loads((tmp_path / "run.json").read_text())
    spoiled = {"command": 7, "machine": {"cores": "many", "ram_bytes": 8}, "wall_s": [], "warnings": {}}
    (tmp_path / "run.json").write_text(json.dumps({**run, **spoiled}))
    recording = open_recording(tmp_path)
    assert (recording.command, recording.machine) == ((), {"cores": None, "ram_bytes": 8})
    assert {warning.split()[1] for warning in recording.warnings} == {
        "command",
        "cores",
        "wall_s",
        "warnings",
    }


def test_a_process_of_multiprocessing_trains_with_what_its_starter_read(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    for pid, about, keys in (
        (4_000_000, {}, ("lr", "num_workers")),
        (4_000_001, {"parent_main_pid": 4_000_000}, ("lr",)),
        (4_000_002, {}, ("lr",)),  # a command of its own
    ):
        writer = crafted.write(store.raw_dir, pid, steps=3, close=False, **about)
        for key in keys:
            writer.note("config", source="yaml", key=key, value=pid)
        writer.close()
    found = {p.pid: {n["key"]: n["value"] for n in p.notes["config"]} for p in open_recording(tmp_path).ranks}
    assert found[4_000_001] == {"num_workers": 4_000_000, "lr": 4_000_001}
    assert found[4_000_002] == {"lr": 4_000_002}


def test_workers_have_no_workers(tmp_path: Path) -> None:
    store = crafted.begun(tmp_path)
    crafted.write(store.raw_dir, 4_000_000, steps=3)
    for number in range(24):  # each that held those before it made 2^24 of them
        about = {"role": "worker", "ppid": 4_000_000, "parent_main_pid": 4_000_000}
        crafted.write(store.raw_dir, 4_000_001 + number, 2_000 + number, steps=1, **about)
    (rank,) = open_recording(tmp_path).ranks
    assert len(rank.workers) == 24 and not any(worker.workers for worker in rank.workers)
