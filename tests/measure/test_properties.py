"""Whatever the rows are, measuring never raises, loses no time and invents none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.scenarios.builder import Script

from hotloop.measure.measure import measure
from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Process

OWNERS = [k for k in row.KIND_NAMES if k not in (row.SAMPLE, row.DEVICE, row.MODULE, row.LOSS, row.GC)]


def process(rows, *, end=None, notes=None):
    table = np.array(sorted(rows, key=lambda r: r[0]), ROW_DTYPE)
    return Process(
        pid=1, ppid=0, role="main", rank=0, start_ns=0, rows=table, notes=notes or {},
        end_ns=end or max([r[0] + r[1] for r in rows], default=0),
    )  # fmt: skip


@st.composite
def nested(draw, start=1_000, depth=0):
    """Well-nested rows: (rows, time after)."""
    rows, now = [], start
    for _ in range(draw(st.integers(0, 12 if depth == 0 else 3))):
        now += draw(st.integers(0, 40_000_000))
        begin = now
        if depth < 3 and draw(st.booleans()):
            inner, now = draw(nested(start=now + 1, depth=depth + 1))
            rows += inner
        now += draw(st.integers(1, 30_000_000))
        kind = draw(st.sampled_from(OWNERS))
        rows.append(
            (begin, now - begin, draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 3)),
             draw(st.sampled_from([0, 1, row.U16_MAX])), draw(st.integers(0, 31)), kind)
        )  # fmt: skip
    return rows, now + 1


samples = st.lists(
    st.tuples(st.integers(1, 900_000_000), st.integers(0, 50_000_000), st.integers(0, 3)), max_size=20
)


def holds(steps):
    assert (steps.phases >= 0).all()
    np.testing.assert_allclose(steps.phases.sum(axis=1), steps.end_s - steps.start_s, rtol=1e-9, atol=1e-12)
    assert (steps.end_s >= steps.start_s).all()
    assert (steps.start_s[1:] >= steps.end_s[:-1]).all()
    assert all(value >= 0 for value in steps.totals.values())
    assert sum(steps.totals.values()) + steps.unaccounted_s == pytest.approx(
        steps.wall_s, rel=1e-9, abs=1e-12
    )
    assert sum(steps.span_totals.values()) == pytest.approx(steps.span_s, rel=1e-9, abs=1e-12)
    assert len(steps.steady) == len(steps.samples) == steps.num_steps


@settings(max_examples=60, deadline=None)
@given(nested(), samples)
def test_nested_rows_add_up(made, sampled):
    rows = made[0] + [(t, w, stack, 0, 500, 10, 0, row.SAMPLE) for t, w, stack in sampled]
    stack = {"id": 1, "frames": [["/a.py", 2, "<module>", 1]], "library": ["logging:info"]}
    holds(measure(process(rows, notes={"stack": [stack]})))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**9), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1),
            st.integers(0, 65535),
            st.integers(0, 65535), st.integers(0, 65535), st.integers(0, 255), st.integers(1, 255),
        ),
        max_size=30,
    )
)  # fmt: skip
def test_any_rows_at_all_are_measured(rows):
    """Overlapping, torn, of unknown kind: a damaged file must still open."""
    holds(measure(process(rows)))


@settings(max_examples=50, deadline=None)
@given(nested(), samples)
def test_any_recording_in_pieces_loses_no_time(made, sampled):
    rows = made[0] + [(t, w, stack, 0, 500, 10, 0, row.SAMPLE) for t, w, stack in sampled]
    whole, parts = measure(process(rows)), measure(process(rows), at_once=6)
    assert parts.wall_s == whole.wall_s
    assert sum(parts.totals.values()) + parts.unaccounted_s == pytest.approx(whole.wall_s, abs=1e-9)
    assert sum(parts.span_totals.values()) == pytest.approx(parts.span_s, abs=1e-9)
    assert (parts.end_s >= parts.start_s).all()
    assert (parts.start_s[1:] >= parts.end_s[:-1]).all()


def test_no_rows():
    steps = measure(process([], end=5_000_000_000))
    assert steps.num_steps == 0
    assert steps.wall_s == 5.0
    assert steps.totals["startup"] == 5.0  # it never came to training
    holds(steps)


def test_inference_only_has_no_steps():
    rows = [(10**6 * i, 500_000, 1, 1, 1, 0, row.FORWARD_PARAMS, row.FORWARD) for i in range(1, 30)]
    steps = measure(process(rows))
    assert steps.num_steps == 0
    assert steps.totals["forward"] == pytest.approx(29 * 0.0005)
    holds(steps)


def test_notes_that_make_no_sense_are_passed_over():
    notes = {
        "site": [{"id": None}, {"id": 1, "stack": "x"}, {}],
        "stack": [{"id": 1, "frames": [[1]]}, {"id": 2}],
        "source": [{"file": "/a.py", "text": "def ("}],
        "loader": [{"id": "x"}, {"id": 1, "dataset": None, "where": "?"}],
        "iterator": [{"id": 1}, {}],
        "batch": [{}],
        "config": [{"key": None, "value": 1}],
        "module": [{"devices": None}],
        "process": [{}],
        "name": [{"id": 1}],
        "worker_stat": [{}],
        "compile": [{"graph_breaks": None}],
        "unread": [{}],
    }
    rows = [(10**6 * i, 10**5, 1, 1, 1, 0, 3, kind) for i, kind in enumerate([1, 4, 5, 6] * 10, 1)]
    holds(measure(process(rows, notes=notes)))


def test_a_row_longer_than_four_seconds_keeps_its_children():
    """Long rows are in microseconds, rounded down: their children must not stick out."""
    long = 5_000_000_999
    rows = [
        (100, 10, 0, 0, 1, 0, 0, row.FORWARD),
        (1_000, long // 1000, 0, 0, 1, 0, row.LONG, row.SAVE),
        (long - 2_000_000, 1_999_999 + 1_000, 0, 0, 0, 0, 0, row.SYNC),
    ]
    steps = measure(process(rows, end=6_000_000_000))
    assert steps.totals["checkpoint"] == pytest.approx(5.0, rel=1e-6)
    assert steps.totals["sync"] == 0
    holds(steps)


def test_time_after_the_script_ended_is_named_and_is_nobodys():
    """The interpreter winds down without samples; the last print must not be charged for it."""
    run = Script("import torch\nprint('done')  # print\n")
    run.work(50)
    run.at("print").work(50)
    run.note("exit", reason="exit")
    run.now += 3_000_000_000
    steps = measure(run.process())
    assert steps.totals["other"] == pytest.approx(3.05, abs=0.1)
    assert steps.totals["logging"] <= 0.1
    assert steps.unaccounted_s < 0.02
