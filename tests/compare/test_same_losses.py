"""Losses of a short run with rewritten code beside those without: the same, others, or nothing told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.compare.test_losses import trace

from hotloop.compare.losses import same_losses
from hotloop.compare.run import Trace

COURSE = 1 + 2 * np.exp(-0.1 * np.arange(32.0))


def rounded(size: float) -> Trace:
    away = size * np.random.default_rng(0).normal(size=len(COURSE))
    return trace(COURSE + np.where(np.arange(len(COURSE)) < 2, 0, away))


BASE = trace(COURSE)


@pytest.mark.parametrize(("exact", "same"), [(True, False), (False, True)])
def test_rounding_is_the_same_where_no_bits_are_promised(exact: bool, same: bool) -> None:
    found = same_losses(BASE, rounded(1e-6), lambda perturbed: BASE, exact=exact)
    assert found.same is same


@pytest.mark.parametrize("exact", [True, False])
def test_a_change_is_told(exact: bool) -> None:
    found = same_losses(BASE, rounded(1e-3), lambda perturbed: BASE, exact=exact)
    assert found.same is False and "first difference at loss 3" in found.words


@pytest.mark.parametrize(
    ("multiplied", "exact", "same"), [(3e-4, False, True), (1e-8, False, False), (3e-4, True, False)]
)
def test_what_training_makes_of_a_last_bit_is_rounding(multiplied: float, exact: bool, same: bool) -> None:
    def again(perturbed: bool) -> Trace:
        return replace(rounded(multiplied), perturbed=True) if perturbed else BASE

    assert same_losses(BASE, rounded(1e-3), again, exact=exact).same is same


@pytest.mark.parametrize("exact", [True, False])
def test_equal_bits_are_the_same_and_nothing_is_run_again(exact: bool) -> None:
    def never(perturbed: bool) -> Trace:
        raise AssertionError

    assert same_losses(BASE, trace(COURSE), never, exact=exact).same is True


def test_where_nothing_is_learned_rounding_tells_nothing() -> None:
    flat, near = trace(1 + 1e-5 * (COURSE - 1)), trace(1 + 1.1e-5 * (COURSE - 1))
    assert same_losses(flat, near, lambda perturbed: flat, exact=False).same is None


def test_what_does_not_repeat_its_own_losses_tells_nothing() -> None:
    found = same_losses(BASE, rounded(0.2), lambda perturbed: trace(COURSE * 1.1), exact=False)
    assert found.same is None and "twice" in found.words


def test_noise_of_the_run_as_found_is_allowed() -> None:
    assert same_losses(BASE, rounded(3e-6), lambda perturbed: rounded(2e-6), exact=True).same is True


@pytest.mark.parametrize(
    "candidate", [None, trace(COURSE[:4]), replace(BASE, recorded=False), trace(np.ones(32))]
)
def test_where_losses_are_missing_nothing_is_told(candidate: Trace | None) -> None:
    base = BASE if candidate is None or len(set(candidate.losses)) > 1 else candidate
    assert same_losses(base, candidate, lambda perturbed: base, exact=True).same is None
    assert same_losses(replace(BASE, recorded=False), BASE, lambda perturbed: BASE, exact=True).same is None
