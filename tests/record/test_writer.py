"""The writer keeps every row it took, in any circumstances, and never hurts its process."""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import running
from tests.running import read_notes, read_rows

from hotloop import fast
from hotloop.record.rows import KIND_NAMES, LONG, ROW, U16_MAX, U32_MAX
from hotloop.record.writer import CHUNK, Writer, _row_function

FETCH = 1


@pytest.fixture(autouse=True, params=["compiled", "python"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here holds for both forms of the function that appends a row."""
    if request.param == "python":
        monkeypatch.setattr(fast, "Rows", None)
        monkeypatch.setenv("HOTLOOP_PURE", "1")  # for processes that a test starts
    elif fast.Rows is None:
        pytest.skip("not compiled for this interpreter")


def raw_rows(path: Path) -> list[tuple[int, ...]]:
    return [row for row in ROW.iter_unpack(path.read_bytes()) if row[-1]]


def test_rows_come_back_as_written_over_several_pieces(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), 7, 9)
    count = CHUNK // ROW.size * 2 + 17
    for i in range(count):
        writer.row(FETCH, i, i + 1, i + 2, i % 100, 3, 4, 5)
    writer.close()
    path = tmp_path / "7-9.rows"
    assert path.stat().st_size == count * ROW.size
    assert raw_rows(path) == [(i, i + 1, i + 2, i % 100, 3, 4, 5, FETCH) for i in range(count)]


def test_a_row_of_a_signal_handler_reserves_no_piece_of_its_own() -> None:
    """Signals that are due are handled where a function of Python begins: at the entry of what reserves."""
    reserved = 0

    def reserve() -> None:
        nonlocal reserved
        row(FETCH, 7, 1)  # the handler
        reserved += 1
        use(mmap.mmap(-1, CHUNK))

    row, use = _row_function(reserve)
    for start in range(CHUNK // ROW.size + 1):
        row(FETCH, start, 1)
    assert (reserved, use(None)) == (2, ROW.size)


def test_a_failure_to_reserve_does_not_keep_later_rows_out() -> None:
    """Ctrl-C may come at the entry of what reserves."""
    arrived = [KeyboardInterrupt()]

    def reserve() -> None:
        if arrived:
            raise arrived.pop()
        use(mmap.mmap(-1, CHUNK))

    row, use = _row_function(reserve)
    with pytest.raises(KeyboardInterrupt):
        row(FETCH, 1, 1)
    row(FETCH, 2, 1)
    assert use(None) == ROW.size


def test_long_intervals_are_in_microseconds_and_other_numbers_saturate(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), 7, 9)
    writer.row(FETCH, 5, 10_000_000_000, 1 << 40, 1 << 20, -3, 1 << 20, 1)
    writer.row(FETCH, 5, -4)
    writer.row(FETCH, 5, 1 << 60)
    writer.close()
    first, second, third = raw_rows(tmp_path / "7-9.rows")
    assert first == (5, 10_000_000, U32_MAX, U16_MAX, 0, U16_MAX, 1 | LONG, FETCH)
    assert second[1] == 0
    assert third[1] == U32_MAX and third[6] == LONG
    assert read_rows(tmp_path / "7-9.rows")[0].dur == 10_000_000_000


def test_numbers_may_come_by_name_and_be_of_any_kind(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), 7, 9)
    writer.row(FETCH, 5, 6, flags=3, site=2)
    writer.row(FETCH, start=5, dur=6.9, value=True)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        writer.row(FETCH, 5)
    with pytest.raises(TypeError):
        writer.row(FETCH, 5, 6, size=3)
    writer.close()
    assert raw_rows(tmp_path / "7-9.rows") == [(5, 6, 0, 2, 0, 0, 3, FETCH), (5, 6, 1, 0, 0, 0, 0, FETCH)]


def test_nothing_is_created_before_something_is_written(tmp_path: Path) -> None:
    opened = []
    writer = Writer(str(tmp_path), 7, 9, eager=False, on_open=lambda: opened.append(True))
    writer.note("site", id=1)
    assert list(tmp_path.iterdir()) == []
    writer.row(FETCH, 1, 1)
    assert opened == [True]
    writer.close()
    assert [note["id"] for note in read_notes(tmp_path / "7-9.notes")["site"]] == [1]


def test_a_note_that_json_cannot_take_becomes_a_warning(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), 7, 9)
    cycle: list[object] = []
    cycle.append(cycle)
    writer.note("loader", value=cycle)
    writer.note("loader", value=Path("x"), text="\udcff")
    writer.close()
    lines = (tmp_path / "7-9.notes").read_bytes().splitlines()
    assert json.loads(lines[0])["note"] == "warning"
    assert json.loads(lines[1])["value"] == "x"


def test_a_missing_folder_switches_the_writer_off_with_one_message(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    writer = Writer(str(tmp_path / "gone"), 7, 9)
    for i in range(5):
        writer.row(FETCH, i, 1)
        writer.note("site", id=i)
    writer.close()
    assert capfd.readouterr().err.count("hotloop:") == 1


def in_process(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = f"from hotloop.record.writer import *\nimport os, signal, sys\nfolder = {str(folder)!r}\n{body}"
    return running.python("-c", script, folder=folder)


@pytest.mark.parametrize("count", [1, 10752, 10753, 30000])
def test_a_killed_process_leaves_every_row(tmp_path: Path, count: int) -> None:
    body = f"w = Writer(folder, 7, 9)\nfor i in range({count}): w.row(1, i, 1)\n"
    body += "os.kill(os.getpid(), signal.SIGKILL)"
    assert in_process(body, tmp_path).returncode == -signal.SIGKILL
    assert [row.start for row in read_rows(tmp_path / "7-9.rows")] == list(range(count))


def test_a_forked_child_does_not_write_into_its_parents_file(tmp_path: Path) -> None:
    body = (
        "w = Writer(folder, 7, 9)\nw.row(1, 1, 1)\n"
        "if os.fork() == 0:\n"
        "    w.restart(8, 9, eager=False)\n    w.row(1, 100, 1)\n    w.close()\n    os._exit(0)\n"
        "os.wait()\nw.row(1, 2, 1)\nw.close()"
    )
    assert in_process(body, tmp_path).returncode == 0
    assert [row.start for row in read_rows(tmp_path / "7-9.rows")] == [1, 2]
    assert [row.start for row in read_rows(tmp_path / "8-9.rows")] == [100]


def test_a_file_size_limit_is_an_error_and_not_a_signal(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a full disk: reserving space fails, the process goes on."""
    body = (
        "import resource\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (CHUNK + 1000, CHUNK + 1000))\n"
        "w = Writer(folder, 7, 9)\nfor i in range(30000): w.row(1, i, 1)\nprint('alive')"
    )
    done = in_process(body, tmp_path)
    assert (done.returncode, done.stdout) == (0, "alive\n")
    assert done.stderr.count("hotloop: recording of process 7 stops here") == 1
    rows = read_rows(tmp_path / "7-9.rows")
    assert [row.start for row in rows] == list(range(CHUNK // ROW.size))


def test_files_are_not_inherited_by_other_programs(tmp_path: Path) -> None:
    writer = Writer(str(tmp_path), 7, 9)
    writer.row(FETCH, 1, 1)
    writer.note("site", id=1)
    ours = [fd for fd in Path("/proc/self/fd").iterdir() if "7-9." in os.path.realpath(fd)]
    assert ours
    assert not any(os.get_inheritable(int(fd.name)) for fd in ours)
    writer.close()


def test_a_script_that_closes_every_descriptor_keeps_its_own_files(tmp_path: Path) -> None:
    body = (
        "w = Writer(folder, 7, 9)\nw.row(1, 1, 1)\nw.note('site', id=1)\n"
        "os.closerange(3, 64)\nmine = [open(f'{folder}/mine{i}', 'w') for i in range(8)]\n"
        "for f in mine: f.write('x' * 100); f.flush()\n"
        "for i in range(11000): w.row(1, i, 1)\n"
        "w.note('site', id=2)\nw.close()"
    )
    assert in_process(body, tmp_path).returncode == 0
    assert {(tmp_path / f"mine{i}").read_text() for i in range(8)} == {"x" * 100}
    assert len(read_rows(tmp_path / "7-9.rows")) == 11001
    assert [note["id"] for note in read_notes(tmp_path / "7-9.notes")["site"]] == [1, 2]


def test_every_kind_has_a_name() -> None:
    assert KIND_NAMES[FETCH] == "fetch"
    assert 0 not in KIND_NAMES
