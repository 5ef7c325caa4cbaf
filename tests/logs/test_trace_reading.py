"""Traces of any layout, size and damage are read as a stream."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.logs.kineto import BASE_US, Machine, kineto_text

from hotloop.logs import reading as stream
from hotloop.logs.trace import analyze, is_trace
from hotloop.logs.trace.table import Trace, nanoseconds, read_trace


def training(steps: int = 3) -> Machine:
    machine = Machine()
    for number in range(steps):
        with machine.step(number):
            machine.load(800)
            machine.copy(1 << 20, 90, pinned=False, non_blocking=False)
            for _ in range(4):
                machine.op(host_us=20, device_us=30, kernel="void at::native::add<4, Functor<float>>(int)")
            machine.item()
    return machine


def events(machine: Machine) -> list[dict[str, Any]]:
    return [event | {"ts": event["ts"] + BASE_US} for event in machine.events]


def rewritten(machine: Machine, layout: str) -> bytes:
    """The same events as other programs write them."""
    whole = {"traceEvents": events(machine), "displayTimeUnit": "ms"}
    texts = {
        "kineto": lambda: kineto_text(machine.events).decode(),
        "json": lambda: json.dumps(whole),
        "compact": lambda: json.dumps(whole, separators=(",", ":")),
        "indented": lambda: json.dumps(whole, indent=1),
        "array": lambda: json.dumps(events(machine), indent=2),
        "array left open": lambda: json.dumps(events(machine))[:-1],
        "mark": lambda: "\ufeff" + json.dumps(whole),
    }
    return texts[layout]().encode()


def rows(trace: Trace) -> list[tuple[Any, ...]]:
    """Every event that was kept, in words."""
    found = []
    for part in (trace.device, trace.calls):
        columns = (part.label, part.thread, part.start, part.end, part.correlation, part.num_bytes)
        for label, thread, *numbers in zip(*(column.tolist() for column in columns), strict=True):
            found.append((trace.name(label), trace.threads[thread], *numbers))
    return sorted(found)


LAYOUTS = ("kineto", "json", "compact", "indented", "array", "array left open", "mark")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_events(tmp_path: Path, layout: str, packed: bool) -> None:
    machine = training()
    data = rewritten(machine, layout)
    path = tmp_path / "a.pt.trace.json"
    path.write_bytes(gzip.compress(data) if packed else data)
    assert is_trace(path)
    trace = read_trace(path)
    assert rows(trace) == rows(read_trace(machine.save(tmp_path / "reference.json")))
    assert len(rows(trace)) == len(machine.events)
    assert trace.reading.skipped == 0
    assert trace.reading.truncated == (layout == "array left open")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3000), st.sampled_from(LAYOUTS))
def test_where_blocks_end_makes_no_difference(
    tmp_path_factory: pytest.TempPathFactory, block_bytes: int, layout: str
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    path.write_bytes(rewritten(training(2), layout))
    whole = rows(read_trace(path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK_BYTES", block_bytes)
        assert rows(read_trace(path)) == whole


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.floats(0, 1), st.sampled_from(LAYOUTS), st.booleans())
def test_cut_anywhere_it_gives_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, share: float, layout: str, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    data = rewritten(training(2), layout)
    path.write_bytes(data)
    whole = set(rows(read_trace(path)))
    data = gzip.compress(data) if packed else data
    path.write_bytes(data[: int(share * len(data))])
    part = analyze(path)
    trace = read_trace(path)
    assert set(rows(trace)) <= whole
    if set(rows(trace)) != whole:
        assert trace.reading.truncated
        assert any("breaks off" in note for note in part.source.notes)


@pytest.mark.parametrize("bracket", "[]{}")
def test_a_bracket_for_a_comma_between_events_costs_one_at_most(tmp_path: Path, bracket: str) -> None:
    path = tmp_path / "trace.json"
    data = bytearray(kineto_text(training(2).events))
    path.write_bytes(data)
    expected = rows(read_trace(path))
    comma = re.search(rb"\}\s*(,)\s*\{", data[len(data) // 2 :])
    assert comma is not None
    data[len(data) // 2 + comma.start(1)] = ord(bracket)
    path.write_bytes(data)
    assert len(set(expected) - set(rows(read_trace(path)))) <= 1


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=40))
@example(at=999_997, rubbish=b"[")
@example(at=999_997, rubbish=b"]")
@example(at=999_997, rubbish=b"{")
@example(at=999_997, rubbish=b"]\0")
@example(at=999_997, rubbish=b'],"')
@example(at=999_997, rubbish=b"]}")
@example(at=8380, rubbish=b"[{")
def test_damage_in_the_middle_costs_the_damaged_events_only(
    tmp_path_factory: pytest.TempPathFactory, at: int, rubbish: bytes
) -> None:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    data = bytearray(kineto_text(training(2).events))
    path.write_bytes(data)
    whole = rows(read_trace(path))
    first = data.index(b'"ph"') + 200
    at = first + at % (len(data) - first)
    data[at : at + len(rubbish)] = rubbish
    path.write_bytes(data)
    analyze(path)
    assert len(set(whole) - set(rows(read_trace(path)))) <= 4


def test_a_damaged_event_is_counted(tmp_path: Path) -> None:
    data = kineto_text(training().events).replace(b'"cudaStreamSynchronize"', b'"cuda"Stream"Synchronize"', 1)
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    part = analyze(path)
    assert part.source.skipped == 1
    assert part.source.notes == ("1 damaged events left out",)


def test_names_may_hold_anything(tmp_path: Path) -> None:
    machine = Machine()
    names = ['say "X"', "a\\b", '{"ph": "X", "cat": "kernel"}', "line\nbreak", "训练", '"traceEvents": [', ""]
    with machine.step(0):
        for name in names:
            machine.op(name, host_us=10, device_us=5)
    trace = read_trace(machine.save(tmp_path / "trace.json"))
    assert {label.name for label in trace.labels} >= set(names)
    assert len(trace.device) == len(names)
    assert trace.reading.skipped == 0


@pytest.mark.parametrize(
    "number", ["1e400", "-5", "true", "null", '"7"', "9" * 40, "NaN", "1.5e-3", "0.1234"]
)
def test_odd_numbers_do_no_harm(tmp_path: Path, number: str) -> None:
    text = kineto_text(training().events).decode()
    path = tmp_path / "trace.json"
    for key in ("ts", "dur", "correlation", "bytes", "pid", "tid"):
        cut = text.index(f'"{key}":', len(text) // 2)
        rest = text[cut:].split(",", 1)[1] if key != "dur" else "\n    ," + text[cut:].split(",", 1)[1]
        path.write_text(f'{text[:cut]}"{key}": {number},{rest}')
        assert analyze(path).source.lines > 0


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[", "{}", '{"a": 1}', "step 1 loss 2", '[{"ph": "M"', "[1, 2]", '{"traceEvents": 3}',
        "\x00\x01", '["ph"]',
    ],
)  # fmt: skip
def test_other_files_are_no_traces(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert is_trace(path) == text.startswith('[{"ph"')
    assert analyze(path).findings == ()  # and reading one all the same does not fail


def test_a_trace_of_another_program_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "v8", "name": "f", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}'
    )
    part = analyze(path)
    assert part.source.kind == "Chrome trace"
    assert part.verdict == "No event of torch.profiler is in this trace."


def test_microseconds_become_nanoseconds() -> None:
    assert nanoseconds((b"1712195495505582.988", b"0.001")).tolist() == [1712195495505582988, 1]
    assert nanoseconds((b"1712195495505582", b"7")).tolist() == [1712195495505582000, 7000]
    assert nanoseconds((b"1.5", b"2", b"3.25", b"4.123456")).tolist() == [1500, 2000, 3250, 4123]
