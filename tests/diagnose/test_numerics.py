"""The numerics family: losses and the gradient scaler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from synthetic import found, loader, steps

from hotloop.diagnose.bottleneck import verdict
from hotloop.measure.steps import Steps

MODEL = {"forward": 0.02, "backward": 0.03}


def with_losses(losses: Any, **fields: Any) -> Steps:
    values = np.asarray(losses, float)
    return steps(MODEL, losses=values, loss_steps=np.arange(len(values)) * 2, **fields)


def decaying(count: int = 100) -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(0).standard_normal(count) * 0.1
    return 0.5 + 2.0 * np.exp(-np.arange(count) / 20) + noise


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_non_finite_loss_is_high_whatever_it_costs(bad: float) -> None:
    losses = decaying()
    losses[40:] = bad
    measured = with_losses(losses)
    item = found(measured)["numerics/non-finite-loss"]
    assert item.severity == "high"
    assert item.data["first_step"] == 80
    assert item.share == pytest.approx(0.6)  # the steps that trained on nothing
    assert "step 80 and stays so" in item.message
    assert "step 80" in verdict(measured, (item,))


def test_a_scaler_skips_single_infinite_losses_by_design() -> None:
    losses = decaying()
    losses[3] = np.inf
    assert "numerics/non-finite-loss" not in found(with_losses(losses, scaler_steps=100, scaler_skips=1))
    assert "numerics/non-finite-loss" in found(with_losses(losses))


def test_a_loss_that_falls_is_silent() -> None:
    assert found(with_losses(decaying())) == {}


def test_a_diverging_loss_is_told() -> None:
    losses = np.concatenate([np.linspace(2.0, 0.5, 50), 0.5 * np.exp(np.linspace(0, 3, 50))])
    item = found(with_losses(losses))["numerics/loss-diverged"]
    assert item.severity == "high"


@pytest.mark.parametrize(
    "losses",
    [
        np.concatenate([np.linspace(2.0, 0.5, 50), np.full(50, 1.2)]),  # up, but not three times its best
        np.concatenate(
            [np.linspace(2.0, 0.5, 50), np.full(10, 9.0), np.linspace(2, 0.6, 40)]
        ),  # a spike that heals
        np.tile([0.01, 3.0], 60) * np.linspace(1, 5, 120),  # two losses in turn
        0.5 * np.exp(np.linspace(0, 3, 20)),  # too few to tell
        np.linspace(-1.0, 5.0, 100),  # an objective that may be negative
    ],
)
def test_what_is_no_divergence(losses: Any) -> None:
    assert "numerics/loss-diverged" not in found(with_losses(losses))


def test_a_loss_that_rises_from_the_start_needs_a_data_set() -> None:
    rising = 0.5 * np.exp(np.linspace(0, 3, 100))
    assert "numerics/loss-diverged" not in found(with_losses(rising))  # a value loss follows its rewards
    assert "numerics/loss-diverged" in found(with_losses(rising, loaders=(loader(),)))


def test_rivals_losses_rise_by_design() -> None:
    losses = np.concatenate([np.linspace(2.0, 0.5, 50), 0.5 * np.exp(np.linspace(0, 3, 50))])
    rivals = {"optimizers": [{"class": "Adam"}, {"class": "Adam"}]}
    assert "numerics/loss-diverged" not in found(with_losses(losses, facts=rivals))


@pytest.mark.parametrize(
    ("steps_seen", "skips", "told"), [(200, 60, True), (200, 16, False), (200, 2, False), (20, 18, False)]
)
def test_a_scaler_that_keeps_skipping(steps_seen: int, skips: int, told: bool) -> None:
    items = found(steps(MODEL, scaler_steps=steps_seen, scaler_skips=skips))
    assert ("numerics/scaler-skipping" in items) is told
    if told:
        assert items["numerics/scaler-skipping"].severity == "medium"
