"""A verdict about a crowded machine, or about few steps that differ, says that it is not sure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import evidence, steps

from hotloop.diagnose.bottleneck import verdict
from hotloop.diagnose.diagnose import doubt, graded
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.steps import Steps

QUIET = steps({"forward": 0.3, "backward": 0.6}, num_steps=40)


def machine(others: float, got: float, *, stolen: float = 0.0, run: Steps = QUIET) -> dict[str, Any]:
    """Samples of two cores: the run uses one of them, others so many, and its thread gets so much of what it
    wants.
    """
    at = np.arange(0.0, run.wall_s, 0.5)
    used = {
        "t_s": at,
        "cpu_ratio": np.full(len(at), (1 + others) / 2),
        "steal_ratio": np.full(len(at), stolen),
    }
    own = {"t_s": at, "cpu_ratio": np.ones(len(at)), "main_cpu_s": at * got, "core_wait_s": at * (1 - got)}
    return {"system": used, "process_system": {run.pid: own}, "machine": {"cpu_count": 2}}


def said(run: Steps, **world: Any) -> str:
    seen = evidence(run, **world)
    return verdict(run, (), doubt(seen))


def test_a_run_that_others_kept_from_its_cores_is_not_called_healthy() -> None:
    words = said(QUIET, **machine(others=0.9, got=0.5))
    assert words.startswith("Compute-bound")
    assert "not sure" in words
    assert "0.9 of 2 cores" in words
    assert "50 %" in words and "a step takes at least 450 ms" in words
    assert "Nothing worth fixing" not in words


@pytest.mark.parametrize(
    "world",
    [
        machine(others=0.9, got=0.97),  # others are there, and in nobody's way
        machine(others=0.1, got=0.5),  # its own workers take the cores
        machine(others=0.0, got=1.0, stolen=0.01),
        {},
    ],
)
def test_a_run_that_got_its_cores_is_judged(world: dict[str, Any]) -> None:
    assert said(QUIET, **world).startswith("Nothing worth fixing: compute-bound")


def test_what_others_took_is_known_where_no_workers_wait() -> None:
    world = machine(others=0.9, got=0.6)
    seen = evidence(QUIET, **world)
    assert seen.taken == pytest.approx(0.4)
    assert evidence(QUIET, **machine(others=0.1, got=0.6)).taken == 0  # its own threads take the cores
    assert replace(seen, process=replace(seen.process, workers=(seen.process,))).taken is None
    assert evidence(QUIET).taken is None


def shared(others: float, **world: Any) -> dict[str, Any]:
    """A run that got half of what it wanted on a machine of 64 cores, of which others use so many."""
    seen = machine(others=0.0, got=0.5)
    return seen | {
        "system": seen["system"] | {"cpu_ratio": np.full(len(seen["system"]["t_s"]), (1 + others) / 64)},
        "machine": {"cpu_count": 64},
        **world,
    }


def test_programs_on_cores_that_the_run_may_not_use_are_in_nobodys_way() -> None:
    assert "not sure" not in said(QUIET, **shared(40.0), cores=8)
    assert "5.0 of 8 cores" in said(QUIET, **shared(61.0), cores=8)


def test_time_the_hypervisor_took_is_told() -> None:
    assert "under this virtual one took 30 %" in said(QUIET, **machine(others=0.0, got=1.0, stolen=0.3))


def test_few_steps_that_differ_are_no_verdict() -> None:
    few = steps({"forward": [0.2, 2.0, 6.0, 0.4, 5.5, 0.3, 3.0, 1.0]}, num_steps=8)
    assert "7 steps after the first took from 300 ms to 6" in said(few)
    assert "not sure" not in said(steps({"forward": [0.2, *[1.0] * 7]}, num_steps=8))
    assert "not sure" in said(steps({"forward": [8.0, 0.3, 0.3, 2.5, *[0.3] * 6]}, num_steps=10))
    many = steps({"forward": [0.2, 6.0] * 20}, num_steps=40)
    assert "not sure" not in said(many)


def test_an_evaluation_after_some_steps_makes_them_no_less_alike() -> None:
    rare = steps({"forward": 0.5, "evaluation": [0, 0, 0, 0, 8.0, 0, 0, 0, 0, 8.0]}, num_steps=10)
    assert doubt(evidence(rare)) == ""


def test_a_cost_that_is_not_sure_is_information_where_others_had_the_cores() -> None:
    found = Finding(
        id="host/python-in-step",
        message="",
        advice="",
        evidence=(),
        cost_s_per_step=0.06,
        cost_ci95=(0.03, 0.09),
    )
    assert [graded(found, 1.0, Limits(), sure=sure).severity for sure in (True, False)] == ["low", "info"]
