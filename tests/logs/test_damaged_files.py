"""Rotten input is read as far as it goes and reported; nothing makes a traceback."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.logs.written import FORMATS, a_run, analyzed

from hotloop.logs.analyze import analyze
from hotloop.logs.log import Part
from hotloop.report.analysis import render

GOOD = "".join(f"step {i} loss 0.5 time {0.3:.3f}s data_time 0.2s\n" for i in range(200)).encode()


def part_of(folder: Path, data: bytes, name: str = "train.log") -> Part:
    done = analyzed(folder, data, name)
    assert all(len(line) <= 80 for line in render(done).splitlines())
    json.dumps(done.to_json())
    return done.parts[0]


def rate(part: Part) -> float:
    return part.throughput[-1].rate


def test_an_empty_file_and_one_of_blanks(tmp_path: Path) -> None:
    assert part_of(tmp_path, b"").source.kind == "empty"
    assert part_of(tmp_path, b"\n\r\n   \n").throughput == ()


def test_binary_is_named_and_its_lines_counted(tmp_path: Path) -> None:
    part = part_of(tmp_path, bytes(range(256)) * 500)
    assert part.source.kind == "binary"
    assert part.source.skipped > 100


REPORT = b"""
hotloop: [step 100] is next
hotloop  python train.py --lr 0.1

Input-bound: the training loop spends 58 % of its time waiting for data.

522 steps \xc2\xb7 61.4 ms/step \xc2\xb7 4,178 samples/s
D data wait          35.6 ms  58 %    E evaluation         4.51 ms   7 %
loss 3.0 time 9.000s data_time 8.9s

report: hotloop-runs/20261121-150755-train/report.html
"""


def test_hotloops_own_report_behind_a_log_is_no_part_of_it(tmp_path: Path) -> None:
    alone, with_report = part_of(tmp_path, GOOD), part_of(tmp_path, GOOD + REPORT)
    assert (with_report.throughput, with_report.phases) == (alone.throughput, alone.phases)
    assert part_of(tmp_path, REPORT).throughput == part_of(tmp_path, REPORT).phases == ()


def test_noise_tells_nothing(tmp_path: Path) -> None:
    for seed in range(3):
        part = part_of(tmp_path, random.Random(seed).randbytes(200_000))
        assert (part.source.kind, part.verdict, part.phases, part.findings) == ("binary", "", (), ())


def test_holes_of_zero_bytes(tmp_path: Path) -> None:
    part = part_of(tmp_path, GOOD[:4000] + b"\0" * 5000 + GOOD[4000:])
    assert part.source.skipped == 1
    assert rate(part) == pytest.approx(1 / 0.3)
    assert "control characters" in part.source.notes


@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "latin-1"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    words = "é" if encoding == "latin-1" else "损失 吞吐"
    text = "".join(f"{words} step {i} loss 0.5 time 0.25s\n" for i in range(100))
    assert rate(part_of(tmp_path, text.encode(encoding))) == 4.0


def test_windows_line_ends_and_colours(tmp_path: Path) -> None:
    part = part_of(tmp_path, b"".join(b"\x1b[32mINFO\x1b[0m step %d time 0.25s\r\n" % i for i in range(50)))
    assert rate(part) == 4.0
    assert part.source.lines == 50


def test_a_line_that_does_not_end(tmp_path: Path) -> None:
    part = part_of(tmp_path, GOOD + b"x" * (9 * 2**20) + b"\n" + GOOD)
    assert part.source.skipped == 1
    assert part.source.lines >= 400
    assert rate(part) == pytest.approx(1 / 0.3)


@pytest.mark.parametrize(
    "line", [b"9" * 3000, b"-" * 3000, b"e" * 3000, b"1 " * 1500, b"a=1," * 700, b"[1/2]" * 600]
)
def test_lines_made_to_be_slow(line: bytes, tmp_path: Path) -> None:
    assert rate(part_of(tmp_path, GOOD + (line + b"\n") * 300 + GOOD)) == pytest.approx(1 / 0.3)


@pytest.mark.parametrize("press", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_and_cut_short(press: object, tmp_path: Path) -> None:
    assert callable(press)
    whole = press(GOOD * 20)
    assert rate(part_of(tmp_path, whole)) == pytest.approx(1 / 0.3)
    cut = part_of(tmp_path, whole[: len(whole) // 2])
    assert cut.source.notes or cut.source.kind == "unreadable"


def test_json_lines_with_broken_ones(tmp_path: Path) -> None:
    rows = [json.dumps({"step": i, "time": 0.25, "loss": 1.0}) for i in range(100)]
    rows[10], rows[20] = rows[10][:9], "not json"
    part = part_of(tmp_path, "\n".join(rows).encode())
    assert part.source.skipped == 2
    assert rate(part) == 4.0


def test_what_cannot_be_opened_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    good = tmp_path / "good.log"
    good.write_bytes(GOOD)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = analyze([pipe, empty, good])
    kinds = [part.source.kind for part in done.parts]
    assert kinds.count("unreadable") == 2
    assert any("Steady" in part.verdict or part.throughput for part in done.parts)


def test_a_folder_is_its_records(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(GOOD)
    (tmp_path / "notes.py").write_text("print(1)")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.jsonl").write_text('{"step": 1, "loss": 2}\n')
    assert [Path(part.source.file).name for part in analyze([tmp_path]).parts] == ["a.log", "b.jsonl"]


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A real log with bytes changed, inserted, repeated and cut."""
    line, _ = FORMATS[draw(st.sampled_from(sorted(FORMATS)))]
    data = "".join(line(o) for o in list(a_run())[: draw(st.integers(1, 60))]).encode()
    pieces = st.sampled_from(
        [b"nan", b"inf", b"1e999", b"-", b"\n", b"\r", b"\0", b"9" * 400, b"{", b"0/0", b"\xff", b",", b": "]
    )  # fmt: skip
    for _ in range(draw(st.integers(0, 12))):
        at, length = draw(st.integers(0, len(data))), draw(st.integers(0, 20))
        data = data[:at] + draw(pieces | st.binary(max_size=4)) + data[at + length :]
    return data


@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=spoiled())
def test_spoiled_logs_are_read_without_an_error(tmp_path: Path, data: bytes) -> None:
    part_of(tmp_path, data)
