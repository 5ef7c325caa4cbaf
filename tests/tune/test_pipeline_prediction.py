"""Predictions for pipelines whose truth is known, one what-if at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from known_pipelines import MIB, pipeline

from hotloop.model import Setup, gain, predict
from hotloop.model.pipeline import EpochCost
from hotloop.model.predict import _COLD_S, alone


def test_the_setup_of_the_run_is_what_is_not_said() -> None:
    told = predict(pipeline())
    assert told.s_per_step == pytest.approx(0.040, rel=0.01)
    assert told.samples_per_s == pytest.approx(200, rel=0.01)
    assert told.limit == "input"
    assert told.low <= told.s_per_step <= told.high


@pytest.mark.parametrize(
    ("setup", "expected", "limit"),
    [
        (Setup(num_workers=0), 0.050, "input"),
        (Setup(num_workers=2), 0.020, "input"),
        (Setup(num_workers=5), 0.010, "device"),
        (Setup(hit_rate=0.75, num_workers=2), 0.010, "device"),
        (Setup(num_workers=4, step_s=0.004), 0.010, "input"),
        (Setup(num_workers=4, step_s=0.100), 0.100, "device"),
    ],
)
def test_what_if(setup: Setup, expected: float, limit: str) -> None:
    told = predict(pipeline(), setup)
    assert told.s_per_step == pytest.approx(expected, rel=0.02)
    assert told.limit == limit
    assert not told.confirm


def test_shipping_is_saved_without_workers() -> None:
    ships = pipeline(make_s=0.030, ship_s=0.020)
    assert predict(ships, Setup(num_workers=0)).s_per_step == pytest.approx(0.020, rel=0.01)


def test_ranks_share_the_cores() -> None:
    computes = pipeline(make_cores=1.0)
    alone_there = predict(computes, Setup(num_workers=4, ranks=1))
    crowded = predict(computes, Setup(num_workers=4, ranks=4))
    assert alone_there.s_per_step == pytest.approx(0.010, rel=0.02)
    assert crowded.s_per_step == pytest.approx(0.040, rel=0.02)
    assert crowded.limit == "cores"
    assert crowded.samples_per_s == pytest.approx(4 * 8 / 0.040, rel=0.02)


def test_a_step_on_the_workers_cores_is_to_be_confirmed() -> None:
    beside = pipeline(make_cores=1.0, step_cores=1.0)
    told = predict(beside, Setup(num_workers=4))
    assert told.confirm
    assert told.doubts
    assert not predict(beside, Setup(num_workers=4, cores=64)).confirm


def test_workers_that_stay_save_their_start_every_epoch() -> None:
    epochs = EpochCost(start_s=0.0, worker_start_s=0.010, wake_s=0.020, stop_s=0.050)
    short = pipeline(batches_per_epoch=10, epoch=epochs)
    new = predict(short, Setup(num_workers=2)).s_per_step
    kept = predict(short, Setup(num_workers=2, persistent_workers=True)).s_per_step
    assert (new - kept) * 10 == pytest.approx(0.020 + 0.020 + 0.050, rel=0.01)
    endless = predict(pipeline(epoch=epochs), Setup(num_workers=2)).s_per_step
    assert endless == pytest.approx(0.020, rel=0.01)


def test_a_long_epoch_is_drawn_out_from_its_steady_part() -> None:
    epochs = EpochCost(start_s=1.0, worker_start_s=0.0, wake_s=0.0, stop_s=0.0)
    told = predict(pipeline(batches_per_epoch=100_000, epoch=epochs), Setup(num_workers=2))
    assert told.s_per_step == pytest.approx(0.020 + 1.0 / 100_000, rel=0.002)


def test_what_is_beside_the_loop_stays() -> None:
    with_evaluation = pipeline(other_s=0.006)
    assert predict(with_evaluation).s_per_step == pytest.approx(0.046, rel=0.01)


def test_an_accelerator_that_is_busy_is_not_outrun() -> None:
    launched = pipeline(step_s=0.002, device_s=0.030)
    assert predict(launched, Setup(num_workers=8)).s_per_step == pytest.approx(0.030)


def test_memory_is_processes_batches_and_cache_of_all_ranks() -> None:
    told = predict(
        pipeline(), Setup(num_workers=3, prefetch_factor=4, ranks=2, cache_bytes=7 * MIB, cores=64)
    )
    assert told.host_bytes == 2 * (300 + 3 * 50 + (3 * 4 + 1) * 10) * MIB + 7 * MIB
    assert predict(pipeline(), Setup(num_workers=0)).host_bytes == 310 * MIB


def test_a_step_that_no_longer_waits_finds_its_caches_warm() -> None:
    """Steps of 2 ms after waits of 38 ms: less where none are left, and how much less is not known well."""
    waits = pipeline(step_s=0.002, waited_s=0.038, step_cores=1.0)
    free, few = Setup(num_workers=60), Setup(num_workers=2)
    assert predict(waits).s_per_step == pytest.approx(0.040, rel=0.01)
    assert predict(waits, free).s_per_step == pytest.approx(0.002 - _COLD_S, rel=0.01)
    assert predict(waits, few).s_per_step == pytest.approx(0.020, rel=0.01)  # they still wait for 18 ms
    large, sleeps = (pipeline(step_s=0.100, waited_s=0.038, step_cores=cores) for cores in (1.0, 0.0))
    assert predict(large, free).s_per_step == pytest.approx(0.100 - _COLD_S, rel=0.001)
    assert predict(sleeps, free).s_per_step == pytest.approx(0.100, rel=0.001)
    ratio, low, high = gain(waits, free)
    assert low < 0.75 * ratio < 1.25 * ratio < high
    known = gain(waits, replace(free, step_s=0.002))
    assert known[2] / known[1] < high / low


def test_a_gain_is_over_the_same_times_and_none_over_itself() -> None:
    tails = np.random.default_rng(3).exponential(0.040, 300)
    varied = pipeline(make_s=tails)
    assert gain(varied, Setup(num_workers=1)) == (1.0, 1.0, 1.0)
    ratio, low, high = gain(varied, Setup(num_workers=2))
    assert 1.0 < low < ratio < high
    now, then = predict(varied), predict(varied, Setup(num_workers=2))
    # Paired: what the two have in common does not widen the interval of their ratio.
    assert high / low < (now.high / now.low) * (then.high / then.low)
    assert gain(varied, Setup(num_workers=2)) == (ratio, low, high)


def test_uncertainty_grows_with_tails_and_shrinks_with_what_was_seen() -> None:
    draw = np.random.default_rng(4).exponential
    few, many = (predict(pipeline(make_s=draw(0.04, num))) for num in (30, 3000))
    steady = predict(pipeline())
    width = [told.high / told.low for told in (few, many, steady)]
    assert width[0] > width[1] > width[2]


def test_crowding_of_the_run_itself_is_taken_out() -> None:
    """Four workers on two cores: batches took twice as long as they would alone."""
    measured = pipeline(
        make_s=0.080, step_s=0.001, make_cores=1.0, measured_s=0.020,
        recorded=Setup(num_workers=4, prefetch_factor=2),
    )  # fmt: skip
    measured = replace(measured, recorded=replace(measured.recorded, cores=2.0))
    freed = alone(measured, np.inf)
    assert float(freed.make_s.mean()) == pytest.approx(0.040, rel=0.05)
    assert predict(freed).s_per_step == pytest.approx(0.020, rel=0.05)
    assert predict(freed, Setup(num_workers=2)).s_per_step == pytest.approx(0.020, rel=0.05)
    assert not freed.doubts


def test_a_model_that_does_not_explain_its_run_says_so() -> None:
    odd = alone(pipeline(measured_s=0.400), np.inf)
    assert "-90%" in odd.doubts[0]
    assert predict(odd, Setup(num_workers=2)).confirm


@pytest.mark.parametrize(
    "wrong",
    [{"num_workers": -1}, {"prefetch_factor": 0}, {"cores": 0.0}, {"hit_rate": 1.5}, {"step_s": 0.0}],
)
def test_a_setup_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Setup(**wrong)
