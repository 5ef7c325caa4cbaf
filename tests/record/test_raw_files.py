from __future__ import annotations

from pathlib import Path

import crafted
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hotloop.record import raw
from hotloop.record import rows as r
from hotloop.record.recording import durations_ns, last_ns
from hotloop.record.rows import ROW
from hotloop.record.writer import Writer


def rows_of(folder: Path) -> Path:
    (found,) = raw.find(folder)
    return folder / f"{found.key}.rows"


def test_only_files_named_like_a_process_are_found_oldest_first(tmp_path: Path) -> None:
    for name in ("7-200.rows", "7-200.notes", "9-100.notes", "x.rows", "7.rows", "12.trace.json", ".lock"):
        (tmp_path / name).touch()
    assert [found.key for found in raw.find(tmp_path)] == ["9-100", "7-200"]
    assert raw.find(tmp_path / "missing") == []


def test_rows_come_back_as_written_and_reading_goes_on_where_it_stopped(tmp_path: Path) -> None:
    writer = crafted.write(tmp_path, 5, steps=2, close=False)
    first, at = raw.read_rows(rows_of(tmp_path), 0, live=False)
    assert first["kind"].tolist() == [kind for kind, _ in crafted.STEP] * 2
    assert first["dur"].tolist() == [dur for _, dur in crafted.STEP] * 2
    writer.row(r.SAVE, 10, 20)
    second, _ = raw.read_rows(rows_of(tmp_path), at, live=False)
    assert second["kind"].tolist() == [r.SAVE]
    writer.close()


@pytest.mark.parametrize("live", [False, True])
def test_rows_are_found_behind_a_piece_that_a_signal_handler_left_with_one(
    tmp_path: Path, live: bool
) -> None:
    """It ran where a piece was about to be reserved and reserved one; then so did what it interrupted."""
    writer = Writer(str(tmp_path), 7, 1)
    writer.row(r.SAMPLE, 1, 1)
    first, at = raw.read_rows(rows_of(tmp_path), 0, live=False)
    writer._roll()
    for start in range(100):
        writer.row(r.FETCH, start, 1)
    found, _ = raw.read_rows(rows_of(tmp_path), at, live=live)
    assert (len(first), len(found)) == (1, 100 - live)
    writer.close()
    assert len(raw.read_rows(rows_of(tmp_path), at, live=live)[0]) == 100 - live


def test_a_long_row_keeps_its_duration_to_the_microsecond(tmp_path: Path) -> None:
    crafted.write(tmp_path, 5, steps=0, rows=[(r.SAVE, 0, 60_000_000_123)])
    found, _ = raw.read_rows(rows_of(tmp_path), 0, live=False)
    assert durations_ns(found).tolist() == [60_000_000_000]
    assert last_ns(found) == 60_000_000_000


def with_holes(tmp_path: Path, kinds: list[int]) -> Path:
    path = tmp_path / "1-1.rows"
    path.write_bytes(b"".join(ROW.pack(100 + i, 5, 0, 0, 0, 0, 0, kind) for i, kind in enumerate(kinds)))
    return path


def test_a_row_that_was_never_finished_does_not_hide_the_rows_behind_it(tmp_path: Path) -> None:
    path = with_holes(tmp_path, [1, 1, 0, 2, 2, 0, 0])
    found, at = raw.read_rows(path, 0, live=False)
    assert found["kind"].tolist() == [1, 1, 2, 2]
    assert at == 5 * ROW.size


def test_while_the_writer_lives_rows_behind_an_unfinished_one_and_the_newest_row_wait(tmp_path: Path) -> None:
    found, at = raw.read_rows(with_holes(tmp_path, [1, 1, 0, 2]), 0, live=True)
    assert (found["kind"].tolist(), at) == ([1, 1], 2 * ROW.size)
    found, at = raw.read_rows(with_holes(tmp_path, [1, 1, 2]), 0, live=True)
    assert (found["kind"].tolist(), at) == ([1, 1], 2 * ROW.size)
    found, at = raw.read_rows(with_holes(tmp_path, [1, 1, 0] + [2] * 100), 0, live=True)
    assert found["kind"].tolist() == [1, 1] + [2] * 99


def test_notes_of_whole_lines_are_read_and_a_torn_one_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "1-1.notes"
    path.write_bytes(b'{"note":"a","t":1}\nnot json\n[]\n{"note":"b","t":2}\n{"note":"c"')
    notes, at, bad = raw.read_notes(path, 0)
    assert [note["note"] for note in notes] == ["a", "b"]
    assert bad == 2
    with path.open("ab") as file:
        file.write(b',"t":3}\n')
    notes, _, bad = raw.read_notes(path, at)
    assert ([note["note"] for note in notes], bad) == (["c"], 0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(max_size=500))
def test_no_bytes_make_reading_fail(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "1-1.rows").write_bytes(junk)
    (tmp_path / "1-1.notes").write_bytes(junk)
    found, _ = raw.read_rows(tmp_path / "1-1.rows", 0, live=False)
    assert not np.any(found["kind"] == 0)
    raw.read_notes(tmp_path / "1-1.notes", 0)
