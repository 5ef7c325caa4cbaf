"""The simulation against what must come out: sums, saturation, shared cores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.feed.throughput import BatchCost, Setting, iteration_s
from hotloop.measure.spans import Table
from hotloop.model.handover import _epoch
from hotloop.model.simulate import Stage, simulate

NUM = 400


def rate(make_s: float, step_s: float, stage: Stage) -> float:
    """Seconds per step once the queue at the start is used up."""
    ended = simulate(np.full(NUM, make_s), np.full(NUM - stage.ahead, step_s), stage).ended_s
    rounds = (len(ended) - 1) // 2 // stage.workers * stage.workers  # batches may come in bursts
    return float(ended[-1] - ended[-1 - rounds]) / rounds


def heavy(generator: np.random.Generator, num: int = 2000) -> np.ndarray:
    return np.where(generator.random(num) < 0.05, 0.200, 0.010)


def test_without_workers_a_step_takes_the_sum() -> None:
    make, step = np.array([0.01, 0.02, 0.03]), np.array([0.1, 0.2, 0.3])
    assert simulate(make, step, Stage(workers=0, ahead=0)).ended_s == pytest.approx(np.cumsum(make + step))


@pytest.mark.parametrize(
    ("workers", "expected"), [(1, 0.041), (2, 0.0205), (3, 0.041 / 3), (4, 0.0110), (8, 0.0110)]
)
def test_the_slower_of_workers_and_step_sets_the_pace(workers: int, expected: float) -> None:
    stage = Stage(workers=workers, ahead=2 * workers, receive_s=0.001, overhead_s=0.001)
    assert rate(0.040, 0.010, stage) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("workers", [1, 2, 3, 6])
@pytest.mark.parametrize("cores", [1.0, 2.0, 16.0])
def test_steady_times_give_the_closed_form_of_feed(workers: int, cores: float) -> None:
    """FIELDNOTES 3.5: max(step + receive, (make + overhead) / W, CPU / C)."""
    stage = Stage(
        workers=workers, ahead=2 * workers, receive_s=1e-3, overhead_s=1e-3, make_cores=1.0, cores=cores
    )
    cost = BatchCost(fetch_s=0.030, fetch_cpu_s=0.030, step_s=0.010, receive_s=1e-3, overhead_s=1e-3)
    closed = iteration_s(cost, Setting("process", workers, 2), cores)
    assert rate(0.030, 0.010, stage) == pytest.approx(closed, rel=0.05)


def test_the_first_batch_is_waited_for_and_latency_does_not_hold_the_worker_up() -> None:
    stage = Stage(workers=2, ahead=4, latency_s=0.005, wake_s=0.1)
    ended = simulate(np.full(NUM, 0.04), np.full(NUM, 0.01), stage).ended_s
    assert ended[0] == pytest.approx(0.1 + 0.04 + 0.005 + 0.01)
    assert rate(0.04, 0.01, stage) == pytest.approx(0.02, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000), workers=st.integers(1, 5), prefetch=st.integers(1, 4), in_order=st.booleans()
)
def test_nothing_is_lost_and_nothing_is_faster_than_it_can_be(
    seed: int, workers: int, prefetch: int, in_order: bool
) -> None:
    generator = np.random.default_rng(seed)
    make, step = generator.exponential(0.02, 150), generator.exponential(0.01, 150)
    stage = Stage(workers=workers, ahead=workers * prefetch, in_order=in_order, make_cores=0.7, cores=1.5)
    course = simulate(make, step, stage)
    assert len(course.ended_s) == 150
    assert (np.diff(course.ended_s) >= step[1:] - 1e-9).all()
    assert course.ended_s[-1] >= max(step.sum(), make.sum() / workers) - 1e-9
    assert course.make_stretch >= 1 - 1e-9


def test_a_heavy_tail_needs_batches_ahead_and_steady_times_do_not() -> None:
    make, step = heavy(np.random.default_rng(1)), np.full(2000, 0.010)
    tails = [simulate(make, step, Stage(workers=2, ahead=2 * p)).ended_s[-1] for p in (1, 2, 4, 8)]
    assert tails == sorted(tails, reverse=True)
    assert tails[0] > 1.05 * tails[-1]
    steady = [rate(0.019, 0.010, Stage(workers=2, ahead=2 * p)) for p in (1, 2, 8)]
    assert steady == pytest.approx([0.010] * 3, rel=0.01)


def test_out_of_order_does_not_wait_for_a_straggler() -> None:
    make, step = heavy(np.random.default_rng(2)), np.full(2000, 0.010)
    waiting, free = (
        simulate(make, step, Stage(workers=3, ahead=6, in_order=order)).ended_s[-1] for order in (True, False)
    )
    assert free < 0.95 * waiting


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_work_that_computes_cannot_beat_the_cores(workers: int) -> None:
    """All compute on one core: a step takes the sum of everything, however many workers there are."""
    stage = Stage(workers=workers, ahead=2 * workers, make_cores=1.0, step_cores=1.0, cores=1.0)
    assert rate(0.030, 0.010, stage) == pytest.approx(0.040, rel=0.02)


def test_what_sleeps_is_not_slowed_by_full_cores() -> None:
    sleeping = Stage(workers=8, ahead=16, make_cores=0.0, step_cores=1.0, cores=1.0)
    assert rate(0.080, 0.010, sleeping) == pytest.approx(0.010, rel=0.01)
    computing = Stage(workers=8, ahead=16, make_cores=1.0, cores=2.0)
    assert rate(0.080, 0.010, computing) == pytest.approx(0.040, rel=0.01)


def test_a_step_of_more_threads_takes_more_of_the_cores() -> None:
    one, four = (
        rate(0.030, 0.030, Stage(workers=1, ahead=2, make_cores=1.0, step_cores=threads, cores=2.0))
        for threads in (1.0, 4.0)
    )
    assert one == pytest.approx(0.030, rel=0.01)
    assert four > 1.5 * one


def test_what_a_new_worker_is_late_with_its_first_batch_is_no_latency() -> None:
    def table(*spans: tuple[int, int]) -> Table:
        start, end = (np.array(side, np.int64) * 1_000_000 for side in zip(*spans, strict=True))
        none: dict[str, np.ndarray] = dict.fromkeys(("kind", "flags", "site", "obj", "extra", "value"), end)
        return Table(start=start, end=end, **none)

    makes = table((10, 12), (15, 40), (45, 60), (65, 80))
    seen = _epoch([makes], table((1, 30), (31, 41), (50, 61), (70, 81)), 0, 2)
    assert seen["late_first_s"] == pytest.approx([0.018])
    assert seen["late_s"] == pytest.approx([0.001] * 3)
