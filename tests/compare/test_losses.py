"""Trajectories: what is told apart, and where nothing can be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hotloop.compare.losses import seeded, unseeded
from hotloop.compare.run import TENSOR_FLOAT, Floats, Trace

STEPS = np.arange(300.0)


def trace(losses: Floats, precision: str = "float32") -> Trace:
    values = losses.astype(np.float32)
    return Trace(
        rank=0,
        recorded=True,
        losses=values.astype(np.float64),
        exact=values.view(np.uint32).astype(np.uint64),
        loaders=(),
        precision=(precision,),
    )


def course(rate: float = 0.02, noise: float = 0.05, seed: int = 0, floor: float = 0.3) -> Floats:
    return floor + 2 * np.exp(-rate * STEPS) + np.random.default_rng(seed).normal(0, noise, len(STEPS))


def test_bits_decide_equality() -> None:
    base = trace(course())
    assert seeded(base, base).outcome == "bit-equal"
    other = replace(base, exact=base.exact ^ np.uint64(1))
    assert seeded(base, other).outcome == "close"
    assert seeded(base, other, [replace(trace(course() * 1.001), perturbed=True)]).outcome == "close"


@pytest.mark.parametrize(("factor", "outcome"), [(1.5, "differs"), (1.0, "close")])
def test_rounding_is_noise_and_another_learning_rate_is_not(factor: float, outcome: str) -> None:
    rounding = 1e-7 * np.random.default_rng(3).normal(size=len(STEPS)) * np.exp(STEPS / 60)
    moved = course(0.02 * factor) + rounding
    assert seeded(trace(course()), trace(moved)).outcome == outcome


def test_what_parts_at_once_is_rounding_only_at_a_lower_precision() -> None:
    moved = course() + 5e-3 * np.random.default_rng(3).normal(size=len(STEPS))
    assert seeded(trace(course()), trace(moved)).outcome == "differs"
    assert seeded(trace(course()), trace(moved, "autocast bfloat16")).outcome == "close"


@pytest.mark.parametrize(
    ("change", "outcome"),
    [("rounding", "close"), ("rate", "differs"), ("late", "differs"), ("at rest", "differs")],
)
def test_what_training_makes_of_rounding_is_allowed_where_a_run_shows_it(change: str, outcome: str) -> None:
    """Another rate; and one that is another from loss 200 on, when rounding has parted the base itself."""

    def parted(seed: int, first: float = 1e-7) -> Floats:
        sizes = np.minimum(first * np.exp(STEPS / 5), 0.3)
        return course() + sizes * np.random.default_rng(seed).normal(size=len(STEPS))

    moved = replace(trace(parted(1)), perturbed=True)
    rest = np.where(STEPS < 200, course(), course()[200])
    changed = {"rounding": parted(2, 5e-7), "rate": course(0.0202), "at rest": rest}
    changed["late"] = course() + (STEPS >= 200) * 0.05
    assert seeded(trace(course()), trace(changed["rounding"])).outcome == "not-measured"
    check = seeded(trace(course()), trace(changed[change]), [moved])
    assert check.outcome == outcome
    assert ("rounding hides" in check.words) == (change == "rounding")
    assert seeded(trace(course()), trace(changed["rounding"]), [trace(course())]).outcome == "not-measured"


def test_a_loss_at_its_floor_tells_nothing() -> None:
    flat = 0.02 + np.random.default_rng(0).normal(0, 0.002, len(STEPS))
    check = seeded(trace(flat), trace(flat + 1e-6))
    assert check.outcome == "indistinct"
    assert "not distinguishable" in check.words


def test_losses_that_are_all_one_number_tell_nothing() -> None:
    assert seeded(trace(np.zeros(50)), trace(np.zeros(50))).outcome == "indistinct"


def test_too_few_losses_are_not_measured() -> None:
    assert seeded(trace(course()[:5]), trace(course()[:5])).outcome == "not-measured"


def test_what_the_base_does_not_repeat_is_allowed() -> None:
    def again(seed: int) -> Trace:
        return trace(course() + np.random.default_rng(seed).normal(0, 1e-3, len(STEPS)))

    assert seeded(trace(course()), again(1)).outcome == "differs"
    assert seeded(trace(course()), again(1), [again(2)]).outcome == "close"


def test_unseeded_runs_are_held_against_the_spread_of_baselines() -> None:
    baselines = [trace(course(seed=seed)) for seed in (1, 2, 3)]
    assert unseeded(baselines, trace(course(seed=4))).outcome == "close"
    assert unseeded(baselines, trace(course(0.04, seed=4))).outcome == "differs"
    assert unseeded(baselines, trace(course(seed=4) + 1.0)).outcome == "differs"


def test_an_unseeded_run_that_is_at_its_floor_at_once_is_not_verified() -> None:
    fast = [trace(course(2.0, seed=seed)) for seed in (1, 2)]
    check = unseeded(fast, trace(course(3.0, seed=3)))
    assert check.outcome == "indistinct"
    assert "not distinguishable" in check.words


def test_nan_is_a_difference() -> None:
    bad = course()
    bad[20:] = np.nan
    check = seeded(trace(course()), trace(bad))
    assert check.outcome == "differs"
    assert "loss 21" in check.words


@pytest.mark.parametrize("at", [1, 77, 280])
def test_a_change_is_sudden_where_it_begins(at: int) -> None:
    late = 3e-4 * (at <= STEPS)
    check = seeded(trace(course()), trace(course() + late))
    assert check.outcome == "differs"
    assert f"first difference at loss {at + 1}" in check.words


@pytest.mark.parametrize(
    ("precision", "rounding", "outcome"),
    [
        ("float32", 5e-7, "close"),
        ("float32", 8e-5, "differs"),
        ("autocast bfloat16", 2e-3, "close"),
        ("autocast bfloat16", 8e-2, "differs"),
        ("float16", 3e-4, "close"),
        (TENSOR_FLOAT, 3e-4, "close"),
    ],
)
def test_what_rounding_may_part_at_once_goes_by_the_shared_precision(
    precision: str, rounding: float, outcome: str
) -> None:
    moved = course() + rounding * np.sign(np.sin(STEPS))
    assert seeded(trace(course(), precision), trace(moved, precision)).outcome == outcome
