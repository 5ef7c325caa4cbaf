"""What is recommended and what is not, from pipelines whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.tune.known_pipelines import pipeline

from hotloop.findings import Finding
from hotloop.model import Pipeline, Setup, predict
from hotloop.tune.calibrate import OTHERS
from hotloop.tune.plans import choose as plans

GIB = 2.0**30


def made(known: Pipeline, **machine: Any) -> plans.Plans:
    there = {"cores": 4.0, "memory_bytes": 16 * GIB, "ranks": 1, **machine}
    return plans.make(known, plans.Machine(**there), [], lambda share, words: None)


def test_nothing_is_recommended_from_a_run_that_others_slowed() -> None:
    quiet, crowded = (made(pipeline(doubts=doubts)) for doubts in ((), (f"{OTHERS}: workers got 40 %",)))
    assert quiet.plans[1].recommended and quiet.plans[1].gain[1] > 1
    for plan in crowded.plans[:3]:
        assert plan.gain[1] > 1
        assert not plan.recommended and "measure it first" in plan.why


def test_what_does_not_fit_into_memory_is_said_and_not_recommended() -> None:
    for machine in ({"memory_bytes": 1024.0}, {"ranks": 1000}):
        found = made(pipeline(), other=True, **machine)
        assert "does not fit" in found.doubts[0]
        assert not any(plan.recommended or plan.settings for plan in found.plans)
    assert not any("does not fit" in doubt for doubt in made(pipeline()).doubts)


def test_ranks_share_the_cores_without_workers_too() -> None:
    known = pipeline(make_cores=1.0, step_cores=1.0)
    shared = predict(known, Setup(num_workers=0, ranks=40))  # a tenth of a core each
    assert shared.s_per_step == pytest.approx(0.5, rel=0.01)
    asleep = predict(pipeline(), Setup(num_workers=0, ranks=40))
    assert asleep.s_per_step == pytest.approx(0.05, rel=0.01)


@pytest.mark.parametrize(("memory_gib", "given"), [(16, False), (6, True)])
def test_a_cache_that_holds_all_samples_is_given_no_size(memory_gib: float, given: bool) -> None:
    """Of the size of the samples it would hold some of them: it needs more for each."""
    again = Finding(id="input/repeated-work", message="", advice="", evidence=(), cost_s_per_step=0.04)
    machine = plans.Machine(cores=4.0, memory_bytes=memory_gib * GIB, ranks=1)
    known = pipeline()
    sample = known.memory.batch_bytes / known.batch_samples
    known = replace(known, num_samples=int(4 * GIB / sample))
    found = plans.make(known, machine, [again], lambda share, words: None)
    values = [one.value for plan in found.plans for one in plan.remedies if one.remedy.id == "cache-samples"]
    assert [value is not None for value in values] == [given]
