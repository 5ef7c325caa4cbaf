"""The trace: valid, nested, in microseconds, bounded."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import full_steps, process, recording, steps

from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.record.rows import BACKWARD, FORWARD, LONG, SAMPLE
from hotloop.report import perfetto


def assert_nested(events: list[dict[str, Any]]) -> None:
    """On one track a slice lies inside the one around it, or after it."""
    tracks = defaultdict(list)
    for event in (one for one in events if one["ph"] == "X"):
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for track in tracks.values():
        stack: list[float] = []
        for start, end, name in sorted(track, key=lambda item: (item[0], -item[1])):
            while stack and stack[-1] <= start + 5e-4:
                stack.pop()
            assert not stack or end <= stack[-1] + 5e-4, (name, start, end, stack[-1])
            stack.append(end)


def run_of(rows: list[tuple[int, ...]], **notes: list[dict[str, Any]]) -> Recording:
    table = np.sort(np.array(rows, ROW_DTYPE), order="start")
    only = Process(pid=7, ppid=1, role="main", rank=0, start_ns=1_000, end_ns=10**9, rows=table, notes=notes)
    return recording(0, ranks=(only,), start_ns=1_000, system={}, process_system={})


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_valid_json_and_nests(packed: bool) -> None:
    trace = perfetto.render(recording(2), [full_steps(rank) for rank in range(2)], packed=packed)
    events = json.loads(gzip.decompress(trace) if packed else trace)["traceEvents"]
    assert_nested(events)
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"rank 0", "rank 1", "rank 0 worker 1"} <= names
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"steps", "training thread", "stack samples", "batches"} <= threads


def test_times_are_microseconds_since_the_command_started() -> None:
    trace = run_of(
        [(5_001_000, 2_000_000, 0, 1, 0, 0, 0, FORWARD)], site=[{"id": 1, "file": "/a.py", "line": 3}]
    )
    (event,) = [event for event in perfetto.events(trace, []) if event["ph"] == "X"]
    assert (event["ts"], event["dur"], event["name"]) == (5000.0, 2000.0, "forward")
    assert event["args"]["place"] == "/a.py:3"


def test_long_rows_are_read_in_their_own_unit() -> None:
    trace = run_of([(1_000, 9_000_000, 0, 0, 0, 0, LONG, BACKWARD)])
    (event,) = [event for event in perfetto.events(trace, []) if event["ph"] == "X"]
    assert event["dur"] == 9_000_000.0


def test_a_sample_covers_the_time_before_it_and_equal_ones_are_one() -> None:
    stack = {"id": 4, "frames": [["/t.py", 1, "main", 1], ["/t.py", 9, "loss", 5]], "library": ["torch:mm"]}
    rows = [(at * 10_000_000 + 1_000, 10_000_000, 4, 0, 1000, 0, 0, SAMPLE) for at in range(1, 6)]
    (event,) = [event for event in perfetto.events(run_of(rows, stack=[stack]), []) if event["ph"] == "X"]
    assert (event["ts"], event["dur"], event["name"]) == (0.0, 50_000.0, "loss t.py:9")
    assert event["args"] == {"samples": 5, "stack": ["main (/t.py:1)", "loss (/t.py:9)", "torch:mm"]}


def test_a_long_run_keeps_its_slowest_steps() -> None:
    rank = steps(2000)
    rank.phases[1000] *= 30
    ends = 11.8 + np.cumsum(rank.phases.sum(axis=1))
    rank.end_s[:], rank.start_s[:] = ends, np.concatenate([[11.8], ends[:-1]])
    trace = recording(0, ranks=(process(num_steps=2000, num_workers=0),), system={}, process_system={})
    events = list(perfetto.events(trace, [rank], max_events=3000))
    assert len(events) < 6000
    shown = {event["name"] for event in events if event.get("cat") == "step"}
    assert "step 1000" in shown
    assert_nested(events)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**8), st.integers(0, 255), st.integers(1, 25)),
        max_size=40,
    )
)
@settings(max_examples=80, deadline=None)
def test_whatever_the_rows_the_trace_nests(rows: list[tuple[int, int, int, int]]) -> None:
    trace = run_of(
        [(at + 1_000, length, 5, 1, 1, 2, flags, kind) for at, length, flags, kind in rows] or [(0,) * 8]
    )
    events = list(perfetto.events(trace, []))
    json.dumps(events, allow_nan=False)
    assert_nested([event for event in events if event.get("cat") != "sample"])
