"""A recording measured in pieces says what it says when it is measured whole."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from tests.scenarios.loops import SCENARIOS, epochs_with_evaluation, plain

from hotloop.measure.measure import measure
from hotloop.measure.steps import Steps
from hotloop.phases import PHASES

measuring = sys.modules["hotloop.measure.measure"]

#: Each in three pieces or so; the cuts fall where they fall.
LONG = {
    **SCENARIOS,
    "many steps": lambda: plain(steps=400),
    "many epochs": lambda: epochs_with_evaluation(epochs=30),
    "epochs longer than a piece": lambda: epochs_with_evaluation(epochs=3, steps=300),
}


@cache
def both(name: str) -> tuple[Steps, Steps]:
    process = LONG[name]().process
    return measure(process), measure(process, at_once=len(process.rows) // 3)


@pytest.mark.parametrize("name", LONG)
def test_steps_and_phases_are_the_same(name: str) -> None:
    whole, parts = both(name)
    np.testing.assert_array_equal(parts.start_s, whole.start_s)
    np.testing.assert_array_equal(parts.end_s, whole.end_s)
    np.testing.assert_array_equal(parts.samples, whole.samples)
    np.testing.assert_array_equal(parts.steady, whole.steady)
    # Gaps are divided by their own piece's samples.
    known = [number for number, phase in enumerate(PHASES) if phase not in ("other", "logging", "data_wait")]
    np.testing.assert_allclose(parts.phases[:, known], whole.phases[:, known], atol=1e-8)
    np.testing.assert_allclose(parts.phases.sum(axis=1), whole.phases.sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("name", LONG)
def test_all_time_is_in_the_totals_once(name: str) -> None:
    whole, parts = both(name)
    assert parts.wall_s == whole.wall_s
    assert parts.span == whole.span
    assert sum(parts.totals.values()) + parts.unaccounted_s == pytest.approx(parts.wall_s, rel=1e-9)
    assert sum(parts.span_totals.values()) == pytest.approx(parts.span_s, rel=1e-9)
    assert parts.totals["startup"] == pytest.approx(whole.totals["startup"])


@pytest.mark.parametrize("name", LONG)
def test_what_is_counted_is_counted_once(name: str) -> None:
    whole, parts = both(name)
    assert parts.num_updates == whole.num_updates
    assert parts.num_epochs == whole.num_epochs
    assert parts.evaluations == whole.evaluations
    assert parts.checkpoints == whole.checkpoints
    assert parts.settings == whole.settings
    assert parts.backwards_per_update == pytest.approx(whole.backwards_per_update, rel=0.1)
    assert parts.loss_steps.tolist() == whole.loss_steps.tolist()
    np.testing.assert_array_equal(parts.losses, whole.losses)
    counts = [
        {view: {(c.place, c.operation): c.count for c in costs} for view, costs in run.sites.items()}
        for run in (parts, whole)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("name", LONG)
def test_loaders_are_the_same(name: str) -> None:
    whole, parts = both(name)
    assert [one.id for one in parts.loaders] == [one.id for one in whole.loaders]
    for one, other in zip(parts.loaders, whole.loaders, strict=True):
        assert (one.role, one.num_batches, one.num_iterators) == (
            other.role,
            other.num_batches,
            other.num_iterators,
        )
        assert one.batches_per_epoch == pytest.approx(other.batches_per_epoch, rel=0.35)
        for column in (
            "wait_s",
            "ready",
            "iter_s",
            "first_batch_s",
            "shutdown_s",
            "make_s",
            "slowest_sample_s",
        ):
            np.testing.assert_array_equal(getattr(one, column), getattr(other, column))
        assert one.batch_bytes == pytest.approx(other.batch_bytes)
        assert one.sample_s == pytest.approx(other.sample_s)


def test_a_long_run_is_cut_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    made, known = [], measuring._measure
    monkeypatch.setattr(measuring, "_measure", lambda piece, *rest: made.append(piece) or known(piece, *rest))
    both.__wrapped__("many epochs")
    assert len(made) >= 3


@pytest.mark.parametrize("at", [0.3, 0.7])
def test_the_steps_of_the_last_rows_are_those_of_the_whole(at: float) -> None:
    process = epochs_with_evaluation(epochs=30).process
    whole = measure(process)
    last = measure(replace(process, rows=process.rows[int(at * len(process.rows)) :].copy(), cuts=(0,)))
    num = last.num_steps
    assert (1 - at) * whole.num_steps - 2 <= num <= (1 - at) * whole.num_steps + 2
    np.testing.assert_array_equal(last.end_s, whole.end_s[-num:])
    np.testing.assert_allclose(last.phases, whole.phases[-num:], atol=1e-9)
    assert last.span[0] >= whole.start_s[-num] and last.span[1] == whole.span[1]


@pytest.mark.parametrize("closed", [14, 50])
def test_steps_in_the_profilers_window_count_for_nothing(closed: int) -> None:
    process = plain(steps=50).process
    whole = measure(process)
    at = [process.start_ns + round((whole.end_s[step] - 1e-4) * 1e9) for step in (10, min(closed, 49))]
    note = {"opened_ns": at[0], "closed_ns": at[1] + (10**9 if closed == 50 else 0)}
    without = measure(replace(process, notes={**process.notes, "profile": [note]}))
    kept = [*range(10), *range(closed + 2, 50)]
    assert without.num_steps == len(kept)
    np.testing.assert_array_equal(without.start_s, whole.start_s[kept])
    np.testing.assert_allclose(without.phases, whole.phases[kept], atol=1e-9)
    assert sum(without.span_totals.values()) == pytest.approx(without.span_s, rel=1e-9)
    if closed < 50:
        left = whole.end_s[closed + 1] - whole.start_s[10]
        assert without.left_out_s == pytest.approx(left)
        assert sum(without.totals.values()) + without.unaccounted_s == pytest.approx(whole.wall_s - left)
