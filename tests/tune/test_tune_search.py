"""The search on runs of known speed: what it takes, what it leaves, and what it never says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_pipelines import pipeline
from tests.compare.test_losses import trace
from tuning_bench import STEPS, Scenario, finding, launcher, search, tune

from hotloop.compare.run import Trace
from hotloop.errors import CheckFailed, UsageError
from hotloop.measure.steps import Interval
from hotloop.model.pipeline import EpochCost
from hotloop.remedy import catalogue
from hotloop.remedy.remedy import Effect
from hotloop.tune import by_model, ideas
from hotloop.tune.candidate import Candidate, Limits
from hotloop.tune.journal import NAME, Journal, subject
from hotloop.tune.outcome import render, to_json
from hotloop.tune.patching import Patches
from hotloop.tune.ratios import pooled, unpaired
from hotloop.tune.sweep import render as render_sweep
from hotloop.tune.sweep import sweep
from hotloop.tune.sweep import to_json as sweep_json
from hotloop.tune.trial import Arm, Examined, Ran, Request, Trial, costs, rate, spell

SLOW = finding("input/single-process", "num-workers", num_workers=4)
SHALLOW = finding("input/shallow-prefetch", "prefetch-factor", cost_s=0.004, prefetch_factor=8)
THREADS = finding("host/thread-oversubscription", "threads", suggested=2)


def factors(**gains: float):
    def step_s(arm: frozenset[str]) -> float:
        seconds = 0.04
        for word in arm:
            seconds /= gains[word.partition("=")[0].replace("-", "_")]
        return seconds

    return step_s


def test_gains_that_add_up_are_taken_one_after_the_other(tmp_path: Path) -> None:
    scenario = Scenario(factors(num_workers=2.0, prefetch_factor=1.2), (SLOW, SHALLOW))
    tuned = tune(scenario, tmp_path)
    assert {str(one) for one in tuned.best} == {"num-workers=4", "prefetch-factor=8"}
    assert tuned.gain is not None
    assert tuned.gain.low < 2.4 < tuned.gain.high or tuned.gain.ratio == pytest.approx(2.4, rel=0.05)
    assert tuned.confirmed
    document = to_json(tuned, ["python", "train.py"], None)
    assert document["best"]["settings"] == {"num_workers": 4, "prefetch_factor": 8}
    assert document["best"]["gain"]["ci95"][0] > 1
    assert document["baseline"]["samples_per_s"] == pytest.approx(200, rel=0.05)
    assert document["command"].startswith(
        "hotloop run --apply num-workers=4 --apply prefetch-factor=8 -- python"
    )
    assert "verify it:" in render(tuned, ["python", "train.py"], None, tmp_path)
    words = " ".join(render(tuned, ["python", "train.py"], None, tmp_path).split())
    assert "(times the gain, which is of pairs; the table has means of all launches)" in words


def test_workers_are_not_exact_where_samples_draw(tmp_path: Path) -> None:
    tuned = tune(Scenario(factors(num_workers=2.0), (SLOW,), draws=("torch",)), tmp_path)
    assert to_json(tuned, ["train"], None)["best"]["effect"] == "semantic"
    words = render(tuned, ["train"], None, tmp_path)
    assert "effect: semantic: samples draw from torch, and will draw other numbers" in words
    assert "verify --effect numeric" in words and "--baseline another-seed" in words
    assert "(none was seen here)" not in words
    words = render(
        tune(Scenario(factors(num_workers=2.0), (SLOW,)), tmp_path / "plain"), ["train"], None, tmp_path
    )
    assert "(none was seen here)" in " ".join(words.split()) and "--baseline" not in words


def test_gains_that_mask_each_other_are_not_counted_twice(tmp_path: Path) -> None:
    scenario = Scenario(lambda arm: 0.02 if arm else 0.04, (SLOW, SHALLOW))
    tuned = tune(scenario, tmp_path)
    assert len(tuned.best) == 1
    assert tuned.gain is not None and tuned.gain.ratio == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("seed", range(12))
def test_noise_is_never_recommended(tmp_path: Path, seed: int) -> None:
    scenario = Scenario(lambda arm: 0.04, (SLOW, SHALLOW), noise=0.04, seed=seed)
    tuned = tune(scenario, tmp_path)
    assert tuned.best == ()
    assert to_json(tuned, ["train"], None)["best"]["gain"] is None
    assert "keep it as it is" in render(tuned, ["train"], None, tmp_path)
    words = render(replace(tuned, crowded=True), ["train"], None, tmp_path)
    assert "other programs" in words and "keep it as it is" not in words


def test_launches_are_compared_alone_where_that_is_known_of_both() -> None:
    held, quiet = (
        Trial(key="a", remedies=(), status="measured", folder="", seconds=1.0, s_per_step=cost, more=more)
        for cost, more in ((0.2, {"taken": 0.5}), (0.11, {"taken": 0.0}))
    )
    assert costs([held, quiet]) == pytest.approx([0.1, 0.11])
    assert costs([held, replace(quiet, more={})]) == pytest.approx([0.2, 0.11])  # its workers wait unseen


def test_a_small_budget_tries_the_most_promising_and_comes_to_an_end(tmp_path: Path) -> None:
    """The other is predicted to give far less than the first gave: it is tried on top of it, if at all."""
    scenario = Scenario(factors(num_workers=2.0, prefetch_factor=1.2), (SHALLOW, SLOW), wall_s=5.0)
    tuned = tune(scenario, tmp_path, budget_s=28.0)  # at five seconds a launch
    assert scenario.launched[:2] == ["unmodified", "num-workers=4"]
    assert "prefetch-factor=8" not in scenario.launched
    assert "num-workers=4" in {str(one) for one in tuned.best}
    assert tuned.gain is not None and tuned.gain.low > 1


def test_what_fills_first_is_launched_for_three_epochs(tmp_path: Path) -> None:
    again = finding("input/repeated-work", "cache-samples")
    gain = factors(cache_samples=2.0)
    scenario = Scenario(lambda arm: 3 * gain(arm), (again,), num_samples=8 * 80)
    tuned = tune(scenario, tmp_path / "long")
    assert [str(one) for one in tuned.best] == ["cache-samples"]
    assert scenario.steps == {"unmodified": 50, "cache-samples": 240}
    words = " ".join(render(tuned, ["train"], None, tmp_path).split())
    assert "the first epoch fills it, as slow as now" in words
    tuned = tune(scenario, tmp_path / "short", budget_s=30.0)
    assert tuned.best == ()
    assert "an epoch has 80 steps: too long" in tuned.left_out[0].why


def test_what_waits_is_given_more_workers_than_cores_where_there_is_room_for_them() -> None:
    """Batches of 96 ms, steps of 2 ms: 48 workers keep up, if nothing of a batch computes."""

    def most(room_bytes: float = np.inf, **fields: Any) -> int:
        memory = replace(known.memory, room_bytes=room_bytes, batch_bytes=8192, **fields.pop("memory", {}))
        given = replace(known, memory=memory, **fields)
        (found,) = by_model.settings(given, (), once=True)
        return next(one.value for one in found.arm if one.remedy.id == "num-workers")

    known = pipeline(0.096, 0.002)
    assert most() == 48
    assert 16 <= most(make_cores=0.25) <= 25  # 4 cores
    assert most(room_bytes=40 * 50 * 2**20) == 40
    assert most(memory={"open_files": 32 * (4 + 2)}) == 32
    assert most(memory={"shared_bytes": 50 * 8192}) == 24
    starts = EpochCost(start_s=0.0, worker_start_s=0.010, wake_s=0.0, stop_s=0.0)
    assert most(epoch=starts, batches_per_epoch=60) <= 20 < most(epoch=starts, batches_per_epoch=10_000)


def test_what_is_read_once_is_not_cached(tmp_path: Path) -> None:
    slow = finding("input/slow-storage", "cache-samples")
    scenario = Scenario(factors(cache_samples=1.0, num_workers=2.0), (slow, SLOW))
    tuned = tune(scenario, tmp_path)
    assert not [name for name in scenario.launched if "cache-samples" in name]
    assert {one.remedy: one.why for one in tuned.left_out} == {
        "cache-samples": "the run reads each sample once"
    }
    assert [str(one) for one in tuned.best] == ["num-workers=4"]


@pytest.mark.parametrize(("budget_s", "pairs"), [(50.0, 2), (30.0, 1)])
def test_few_long_launches_are_enough_for_a_large_gain(tmp_path: Path, budget_s: float, pairs: int) -> None:
    """A launch takes a quarter of the budget or a third: the first run is one of the unmodified run."""
    scenario = Scenario(factors(num_workers=3.0), (SLOW,), noise=0.02)
    run, here = scenario.run, launcher(scenario, tmp_path)

    def long(request: Request) -> Ran:
        here.budget_s -= 12.0 if not request.arm else 8.0
        return replace(run(request), wall_s=12.0)

    scenario.run = long  # type: ignore[method-assign]
    here.bench, here.budget_s = scenario.bench(), budget_s
    tuned = search(here)
    assert [str(one) for one in tuned.best] == ["num-workers=4"]
    assert scenario.launched == ["unmodified", "num-workers=4", "num-workers=4", "unmodified"][: pairs + 2]
    assert tuned.confirmed == (pairs > 1)
    assert tuned.gain is not None and tuned.gain.pairs == pairs
    assert tuned.gain.low < 3 < tuned.gain.high


def losses(factor: float = 1.0) -> Trace:
    return trace(factor * np.exp(-0.1 * np.arange(32.0)))


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_patch_whose_losses_are_others_is_never_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    monkeypatch.setattr(Patches, "cannot", lambda self, arm: "")
    monkeypatch.setattr(Patches, "in_force", lambda self, arm: None)
    loop = finding("host/python-in-step", "foreach-loop", cost_s=0.02)
    scenario = Scenario(
        factors(foreach_loop=2.0, threads=1.5), (loop, THREADS),
        traces={"unmodified": losses(), "foreach-loop": losses(factor)},
    )  # fmt: skip
    tuned = tune(scenario, tmp_path, allow="numeric")
    same = factor == 1.0
    assert ("foreach-loop" in {str(one) for one in tuned.best}) is same
    assert "threads=2" in {str(one) for one in tuned.best}
    words = " ".join(render(tuned, ["train"], None, tmp_path).split())
    assert ("foreach-loop: 32 losses bit-equal" in words) is same
    assert ("the patched run has other losses than the unmodified run" in words) is not same


def evidenced(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The launches whose losses are recorded."""
    seen: list[Request] = []
    run = Scenario.run

    def noted(self: Scenario, request: Request) -> Ran:
        seen.extend([request] if request.evidence else [])
        return run(self, request)

    monkeypatch.setattr(Scenario, "run", noted)
    return seen


def rewriting(
    gain: float, monkeypatch: pytest.MonkeyPatch, **traces: Trace
) -> tuple[Scenario, list[Request]]:
    """A loop whose patch gives so much, and the launches that are proofs."""
    monkeypatch.setattr(Patches, "cannot", lambda self, arm: "")
    monkeypatch.setattr(Patches, "in_force", lambda self, arm: None)
    loop = finding("host/python-in-step", "foreach-loop", cost_s=0.02)
    told = {name.replace("_", " "): trace for name, trace in traces.items()}
    return Scenario(factors(foreach_loop=gain), (loop,), traces=told), evidenced(monkeypatch)


@pytest.mark.parametrize(("gains", "proven"), [([1.3, 0.87, 1.3, 0.9, 1.0], False), ([1.1], True)])
def test_only_what_wins_beyond_noise_is_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gains: list[float], proven: bool
) -> None:
    scenario, proofs = rewriting(1.0, monkeypatch)

    def step_s(arm: frozenset[str]) -> float:
        return 0.04 / (gains.pop(0) if arm and len(gains) > 1 else gains[0] if arm else 1.0)

    tuned = tune(replace(scenario, step_s=step_s, noise=0.001), tmp_path, allow="numeric")
    assert tuned.gain is not None and tuned.gain.pairs > 1
    assert (bool(tuned.best), len(proofs)) == (proven, proven), "no losses are seen here"


@pytest.mark.parametrize("budget_s", [0.0, 600.0])
def test_what_no_proof_was_done_for_is_not_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget_s: float
) -> None:
    scenario, proofs = rewriting(2.0, monkeypatch, as_found=losses())
    run = scenario.run
    here = launcher(scenario, tmp_path, budget_s=10.0, allow="numeric")

    def ends(request: Request) -> Ran:
        ran = run(request)
        if not request.evidence:
            return ran
        here.budget_s = budget_s
        return replace(ran, ended_for=f"was not done after {request.timeout_s:.1f} s")

    here.bench = replace(scenario.bench(), run=ends)
    tuned = search(here)
    assert tuned.best == () and len(proofs) == 1, "the other side's would show nothing"
    assert proofs[0].timeout_s <= 15.0, "so long as the budget, and a little"
    words = " ".join(render(tuned, ["train"], None, tmp_path).split())
    assert "beyond noise but foreach-loop, not taken for what is said below" in words
    assert "has the losses of the unmodified run was not shown: " in words
    assert ("the budget is spent" in words) is (budget_s == 0)
    assert not any(key.startswith("proof/") for key in here.journal.trials), "a larger budget does it"


SAME, OTHERS = losses(), losses(1.01)
FIRST = "32 losses bit-equal, all of the first epoch: the budget has no room for a second"
GC = finding("host/gc-pauses", "gc-freeze", cost_s=0.01)


@pytest.mark.parametrize("same", [True, False])
def test_what_is_called_exact_is_taken_with_the_losses_it_had_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    proofs = evidenced(monkeypatch)
    traces = {"unmodified": SAME, "num-workers=4": SAME if same else OTHERS}
    scenario = Scenario(factors(num_workers=2.0), (SLOW,), num_samples=8 * 20, num_iterators=3, traces=traces)
    tuned = tune(scenario, tmp_path)
    assert bool(tuned.best) is same
    words = " ".join(render(tuned, ["train"], None, tmp_path).split())
    assert ("num-workers=4: 32 losses bit-equal" in words) is same
    assert ("losses with it are others than without: " in words) is not same
    assert {request.steps for request in proofs} == {2 * 20 + 32}, "into the third epoch"
    assert [spell(request.arm) for request in proofs][:2] == ["unmodified", "num-workers=4"]


@pytest.mark.parametrize(
    ("factor", "told"),
    [
        (1 + 1e-6, "threads=2: within"),
        (1.01, "losses with it are others than without: "),
        (None, "threads=2: cannot tell by losses: no losses were seen"),
    ],
)
def test_what_may_round_otherwise_is_trained_beside_the_run_without_it(
    tmp_path: Path, factor: float | None, told: str
) -> None:
    traces = {"unmodified": SAME} | ({"threads=2": losses(factor)} if factor else {})
    tuned = tune(Scenario(factors(threads=2.0), (THREADS,), traces=traces), tmp_path, allow="numeric")
    assert bool(tuned.best) is (factor != 1.01)
    words = " ".join(render(tuned, ["train"], None, tmp_path).split())
    assert told in words
    assert ("hotloop verify --effect numeric" in words) is bool(tuned.best)


def test_only_the_one_that_changes_losses_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proofs = evidenced(monkeypatch)
    traces = {
        "unmodified": SAME, "num-workers=4": OTHERS, "gc-freeze": SAME, "gc-freeze + num-workers=4": OTHERS,
    }  # fmt: skip
    tuned = tune(Scenario(factors(num_workers=2.0, gc_freeze=1.3), (SLOW, GC), traces=traces), tmp_path)
    assert {str(one) for one in tuned.best} == {"gc-freeze"}
    assert tuned.refused == ("num-workers=4",) and tuned.proofs == (f"gc-freeze: {FIRST}",)
    assert {request.steps for request in proofs} == {32}, "an epoch has 12,500"


def test_what_is_at_fault_only_beside_another_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidenced(monkeypatch)
    traces = {
        "unmodified": SAME, "num-workers=4": SAME, "persistent-workers": SAME,
        "num-workers=4 + persistent-workers": OTHERS,
    }  # fmt: skip
    staying = finding("input/respawned-workers", "persistent-workers", cost_s=0.01)
    scenario = Scenario(
        factors(num_workers=2.0, persistent_workers=1.3, no_workers=1.0), (SLOW, staying), traces=traces
    )
    here = launcher(scenario, tmp_path)
    tuned = search(here)
    assert {str(one) for one in tuned.best} == {"num-workers=4"} and tuned.refused == ("persistent-workers",)
    again = [key for key in here.journal.trials if key.startswith("confirm-1/")]
    assert any(key.endswith("/unmodified") for key in again), "beside launches of its own time"
    raced = [
        key for key in here.journal.trials if key.startswith("race") and key.endswith("/0/num-workers=4")
    ]
    assert len(raced) == 1, "it need not win again"


@pytest.mark.parametrize("num_iterators", [1, 3])
def test_epochs_that_repeat_are_worth_a_cache_that_no_finding_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_iterators: int
) -> None:
    cheap = pipeline(collate_s=0.02, cached_s=0.0001)
    monkeypatch.setattr(by_model, "calibrate", lambda evidence: cheap)
    gain = factors(cache_samples=3.0, num_workers=1.2, persistent_workers=1.0, no_workers=1.0)
    scenario = Scenario(gain, (SLOW,), num_iterators=num_iterators, num_samples=8 * 20)
    tuned = tune(scenario, tmp_path)
    assert ("cache-samples" in {str(one) for one in tuned.best}) == (num_iterators > 1)


def test_a_cache_is_promised_what_fits_into_memory() -> None:
    cached = Candidate(arm=(catalogue.parse("cache-samples"),), why="input/slow-sample")
    known = pipeline(make_s=0.040, step_s=0.001)  # 1.25 MiB a sample, 8,000 of them

    def promised(room_bytes: float) -> float:
        memory = replace(known.memory, room_bytes=room_bytes)
        return by_model.predicted(replace(known, memory=memory), cached, ()).predicted or 0.0

    assert promised(20e9) > 30
    assert promised(8000 * 1.25 * 2**20 / 2) == pytest.approx(2.0, rel=0.02)


def test_a_cache_is_tried_without_the_workers_it_makes_useless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_model, "calibrate", lambda evidence: pipeline(receive_s=0.005))
    again = finding("input/repeated-work", "cache-samples")
    gain = factors(cache_samples=2.0, no_workers=1.5, num_workers=1.0)
    scenario = Scenario(gain, (again,), num_iterators=3)
    tuned = tune(scenario, tmp_path)
    assert "cache-samples + no-workers" in scenario.launched
    assert [str(one) for one in tuned.best] == ["cache-samples", "no-workers"]


def test_samples_that_draw_are_not_cached(tmp_path: Path) -> None:
    again = finding("input/slow-sample", "cache-samples", "bake")
    scenario = Scenario(factors(cache_samples=2.0), (again,), draws=("numpy.random",))
    tuned = tune(scenario, tmp_path)
    assert scenario.launched == ["unmodified"]
    assert all(one.why.startswith("samples draw from numpy.random: ") for one in tuned.left_out)
    told = {one.remedy: one for one in tuned.left_out}["bake"]
    assert told.why.endswith(": bake what comes before that") and not told.by_hand


def test_what_makes_it_slower_is_dropped_after_one_launch(tmp_path: Path) -> None:
    scenario = Scenario(factors(num_workers=0.3, prefetch_factor=1.5), (SLOW, SHALLOW))
    assert {str(one) for one in tune(scenario, tmp_path).best} == {"prefetch-factor=8"}
    assert scenario.launched.count("num-workers=4") == 1


@pytest.mark.parametrize(
    ("ran", "why"),
    [
        (Ran(exit_code=1, wall_s=1.0, last_words="ValueError: no"), "ValueError: no"),
        (Ran(exit_code=137, wall_s=1.0, ended_for="was not done after 20 s"), "was not done after 20 s"),
    ],
)
def test_a_trial_that_fails_is_a_result_and_harms_nothing(tmp_path: Path, ran: Ran, why: str) -> None:
    scenario = Scenario(factors(prefetch_factor=1.5), (SLOW, SHALLOW), fails={"num-workers=4": ran})
    tuned = tune(scenario, tmp_path)
    assert [str(one) for one in tuned.best] == ["prefetch-factor=8"]
    left = {one.remedy: one.why for one in tuned.left_out}
    assert why in left["num-workers=4"]


def test_a_remedy_that_was_not_in_effect_is_left_out_with_its_own_words(tmp_path: Path) -> None:
    scenario = Scenario(lambda arm: 0.04, (SLOW,), applied={"num-workers": "an iterable dataset"})
    tuned = tune(scenario, tmp_path)
    assert {one.remedy: one.why for one in tuned.left_out} == {"num-workers=4": "an iterable dataset"}


def test_a_tuning_that_was_ended_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = Scenario(factors(num_workers=2.0, prefetch_factor=1.2), (SLOW, SHALLOW), noise=0.0)
    wanted = tune(whole, tmp_path / "whole")
    part = Scenario(factors(num_workers=2.0, prefetch_factor=1.2), (SLOW, SHALLOW), noise=0.0)
    run = part.run

    def ends(request: Request) -> Ran:
        return Ran(exit_code=130, wall_s=0.0, interrupted=True) if len(part.launched) == 3 else run(request)

    part.run = ends  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        tune(part, tmp_path / "part")
    journal = tmp_path / "part" / NAME
    with journal.open("a") as stream:
        stream.write('{"key": "race-1/1/torn')  # killed while it wrote
    part.run = run  # type: ignore[method-assign]
    tuned = tune(part, tmp_path / "part")
    # The round it was in begins again: what is compared is of one time.
    assert part.launched == [*whole.launched[:3], *whole.launched[2:]]
    assert tuned.best == wanted.best
    assert tuned.gain == wanted.gain
    assert tune(part, tmp_path / "part", budget_s=1e-6).gain == wanted.gain  # nothing is left to launch
    assert len(part.launched) == len(whole.launched) + 1
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    launched = [line for line in lines if "key" in line and not line["key"].startswith("proof/")]
    assert len(launched) == len(part.launched)


def test_an_iterable_dataset_is_given_nothing_that_needs_numbered_samples(tmp_path: Path) -> None:
    slow = finding("input/slow-sample", "bake", "cache-samples", num_workers=4)
    few = finding("input/too-few-workers", num_workers=4)
    gain = factors(cache_samples=2.0, num_workers=2.0)
    tuned = tune(Scenario(gain, (slow, few), iterable=True), tmp_path)
    assert {one.remedies for one in tuned.trials} == {()}
    left = {one.remedy: one for one in tuned.left_out}
    assert left["cache-samples"].why == "the dataset is iterable: its samples have no number"
    assert left["num-workers"].by_hand.startswith("num_workers=4, if __iter__ takes")


def test_results_that_are_kept_promise_no_more_than_their_function_takes() -> None:
    evidence = Scenario(lambda arm: 0.04)._evidence(frozenset(), 0.04)
    slow = finding("input/slow-sample", "memoize", cost_s=0.004, function="a.py:f")
    both = finding(
        SLOW.id, "memoize", "num-workers", num_workers=4, function="a.py:f", function_saves_s=0.004
    )
    found, _ = ideas.ideas(evidence, [both, slow], (), Limits(allow="exact"), (), cannot=lambda arm: "")
    assert [one.name for one in found if "cache" not in one.name] == ["num-workers=4", "memoize=a.py:f"]


def test_what_no_launch_can_change_is_listed_and_not_launched(tmp_path: Path) -> None:
    """Workers without a DataLoader; the loader of an evaluation; a line that a person rewrites."""
    evaluated = finding("cadence/evaluation", "evaluation-workers", loader_saves_s=0.01, steps_between=30)
    evidence = Scenario(lambda arm: 0.04)._evidence(frozenset(), 0.04)
    bare = replace(evidence, steps=replace(evidence.steps, loaders=()))
    asked = [SLOW, evaluated, finding("host/python-in-step")]
    tried, left = ideas.ideas(bare, asked, (), Limits(allow="exact"), (), cannot=lambda arm: "", steps=50)
    assert not tried
    why = {one.remedy: one.words for one in left}
    assert why["num-workers"] == "the batches come from no DataLoader"
    assert why["evaluation-workers"].startswith("comes too rarely for a trial; up to 1.33x")
    assert why["host/python-in-step"].startswith("no change that a launch could have in force")
    name = "less-frequent-evaluation"  # it comes twice in a launch, or is left; without a number fix has one
    for number, n, wanted in ((7, 60, [f"{name}=3"]), (7, 30, []), (None, 60, [name])):
        often = finding("cadence/evaluation", name, every_nth=number, steps_between=10)
        given = (bare, [often], (), Limits(allow="semantic"), ())
        found, left = ideas.ideas(*given, cannot=lambda arm: "", steps=n)
        assert [str(one.arm[0]) for one in found] == wanted
        full = [one for one in left if one.remedy == f"{name}=7" and f"{name}=3" in one.why]
        assert bool(full) is (wanted == [f"{name}=3"])


def test_what_no_price_is_known_of_is_raced_where_its_finding_says_so(tmp_path: Path) -> None:
    """Retries of the allocator stall the device for a time that only launches show."""
    gain = factors(keep_freed_memory=1.2)
    told = finding("memory/fragmentation", "keep-freed-memory", cost_s=0.0, unpriced=True)
    tuned = tune(Scenario(gain, (told,), noise=0.0), tmp_path / "told")
    assert [str(one) for one in tuned.best] == ["keep-freed-memory"]
    untold = finding("memory/fragmentation", "keep-freed-memory", cost_s=0.0)
    scenario = Scenario(gain, (untold,), noise=0.0)
    assert tune(scenario, tmp_path / "untold").best == ()
    assert scenario.launched == ["unmodified"]


def test_a_tuning_is_of_the_files_that_the_run_read(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("num_workers = 0\n")
    scenario = Scenario(factors(num_workers=2.0), (SLOW,), noise=0.0, files=(settings,))
    tuned = tune(scenario, tmp_path / "tuned")
    assert tune(scenario, tmp_path / "tuned").gain == tuned.gain
    settings.write_text("num_workers = 4\n")  # as its patch would have it
    with pytest.raises(UsageError, match=r"other files, changed since: .*settings\.toml"):
        tune(scenario, tmp_path / "tuned")


def test_a_first_run_that_failed_is_tried_again(tmp_path: Path) -> None:
    failed = Ran(exit_code=1, wall_s=1.0, last_words="CUDA error")
    with pytest.raises(CheckFailed, match="CUDA error"):
        tune(Scenario(lambda arm: 0.04, fails={"unmodified": failed}), tmp_path)
    assert tune(Scenario(lambda arm: 0.04), tmp_path).first.status == "measured"


def test_batches_that_were_made_ahead_do_not_count(tmp_path: Path) -> None:
    scenario = Scenario(lambda arm: 0.01, noise=0.0)
    scenario.run(Request(folder=tmp_path / "trials" / "0", arm=(), timeout_s=1.0))
    seen = scenario.examine(tmp_path / "trials" / "0")
    assert seen.evidence is not None
    steps = seen.evidence.steps
    length = np.where(np.arange(STEPS) < 32, 0.001, 0.01)  # as long as the queue of 16 x 2 lasts
    start = np.concatenate([[0.0], np.cumsum(length)[:-1]])
    loader = replace(steps.loaders[0], settings={"num_workers": 16, "prefetch_factor": 2, "batch_size": 8})
    steps = replace(steps, start_s=start, end_s=start + length, loaders=(loader,))
    found = rate((steps,), steps)
    assert found is not None
    assert found.s_per_step == pytest.approx(0.01)
    slower = replace(steps, start_s=start * np.linspace(1, 2, STEPS))  # a longer run than launches are
    cut = rate((slower,), slower, most=50)
    assert cut is not None and cut.num_steps == 18
    assert cut.s_per_step == pytest.approx(float(np.diff(slower.start_s)[32:50].mean()))


def test_epochs_count_with_as_many_evaluations(tmp_path: Path) -> None:
    scenario = Scenario(lambda arm: 0.01, noise=0.0)
    scenario.run(Request(folder=tmp_path / "trials" / "0", arm=(), timeout_s=1.0))
    seen = scenario.examine(tmp_path / "trials" / "0")
    assert seen.evidence is not None
    steps, epoch = seen.evidence.steps, STEPS // 4
    after = [epoch, 2 * epoch, 3 * epoch, 4 * epoch]
    length = np.full(4 * epoch, 0.01)
    length[[*after[:3], -1]] += 0.5
    end = np.cumsum(length)
    start = np.append(0.0, end[:-1])
    begun = [*start[after[:3]], end[-1] - 0.5]
    evaluations = tuple(
        Interval(start_s=at, end_s=at + 0.5, after_step=step) for at, step in zip(begun, after, strict=True)
    )
    loader = replace(steps.loaders[0], batches_per_epoch=float(epoch), num_iterators=4)
    steps = replace(steps, loaders=(loader,), evaluations=evaluations)
    columns = {"start_s": start, "end_s": end, "steady": np.ones(4 * epoch, bool)}
    steps = replace(steps, **columns, phases=steps.phases[: 4 * epoch], samples=steps.samples[: 4 * epoch])
    found = rate((steps,), steps)
    assert found is not None and found.num_steps == 3 * epoch
    assert found.s_per_step == pytest.approx(0.01 + 0.5 / epoch)


def test_two_tunings_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    here = launcher(Scenario(lambda arm: 0.04), tmp_path)
    with pytest.raises(UsageError, match="a tuning is going on in this folder"):
        tune(Scenario(lambda arm: 0.04), tmp_path)
    here.journal.close()


def test_a_launch_that_could_not_begin_is_not_held_against_its_remedy(tmp_path: Path) -> None:
    scenario = Scenario(factors(num_workers=2.0), (SLOW,))
    run = scenario.run

    def vanishes(request: Request) -> Ran:
        done = run(request)
        first = scenario.launched.count("num-workers=4") == 1 and bool(request.arm)
        return Ran(exit_code=125, wall_s=0.1, ended_for="no layer", started=False) if first else done

    scenario.run = vanishes  # type: ignore[method-assign]
    tuned = tune(scenario, tmp_path)
    assert [str(one) for one in tuned.best] == ["num-workers=4"]
    assert not tuned.left_out


def test_another_state_of_the_script_is_another_tuning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("SIZE = 1\n")
    command = ["python", "train.py"]
    Journal(tmp_path, subject(command)).close()
    Journal(tmp_path, subject(command)).close()
    (tmp_path / "train.py").write_text("SIZE = 2\n")
    with pytest.raises(UsageError, match=r"other files, changed since: .*train\.py$"):
        Journal(tmp_path, subject(command))


def test_the_folder_of_another_command_is_refused(tmp_path: Path) -> None:
    tune(Scenario(lambda arm: 0.04), tmp_path)
    journal = tmp_path / NAME
    journal.write_text(journal.read_text().replace('"train"', '"other"', 1))
    with pytest.raises(UsageError, match="another command: other"):
        tune(Scenario(lambda arm: 0.04), tmp_path)


def test_a_budget_that_has_no_room_for_a_single_arm_says_what_would(tmp_path: Path) -> None:
    here = launcher(Scenario(factors(num_workers=2.0), (SLOW,)), tmp_path, budget_s=60.0)
    first = here.first

    def slow() -> tuple[Trial, Examined]:
        found = first()
        here.launch_s = here.start_s = 70.0
        return found

    here.first = slow  # type: ignore[method-assign]
    tuned = search(here)
    assert here.journal.trials.keys() == {"first"}
    assert tuned.needs is not None and tuned.needs.name == "num-workers=4"
    assert ("num-workers=4", "no room in the budget") in [(one.remedy, one.why) for one in tuned.left_out]
    words = " ".join(render(tuned, ["train"], None, tmp_path / "tuned").split())
    assert "nothing was tried: no launch of num-workers=4 fits into what the unmodified run left" in words
    budgets = {float(found) for found in re.findall(r"--budget (\d+)s or more", words)}
    assert len(budgets) == 1 and tuned.needs.budget_s <= budgets.pop() <= 1.2 * tuned.needs.budget_s + 10
    assert to_json(tuned, ["train"], None)["needs"] == vars(tuned.needs)


def test_a_run_that_was_ended_before_its_first_step_asks_for_a_larger_budget(tmp_path: Path) -> None:
    ended = Ran(exit_code=137, wall_s=60.0, ended_for="was not done after 1 min")
    with pytest.raises(CheckFailed, match="was not done after 1 min") as error:
        tune(Scenario(lambda arm: 0.04, fails={"unmodified": ended}), tmp_path, budget_s=60.0)
    assert "a larger --budget; if it makes data first, run" in str(error.value.hint)


def test_what_one_race_has_no_place_for_is_tried_next(tmp_path: Path) -> None:
    names = [f"{one}-workers" for one in ("num", "persistent", "no")]
    names += ["prefetch-factor", "pin-memory", "ring-loader"]
    asked = tuple(finding(f"host/{one}", one, num_workers=4, prefetch_factor=8) for one in names)
    scenario = Scenario(lambda arm: 0.04, asked, noise=0.0)
    tune(scenario, tmp_path)
    assert {one.partition("=")[0] for one in scenario.launched} == {"unmodified", *names}


def test_few_launches_of_several_arms_share_their_noise() -> None:
    alone = pooled({"a": [0.5, 0.52]})["a"]
    beside = pooled({"a": [0.5, 0.52], "b": [0.1, 0.13], "c": [0.0, 0.01]})["a"]
    assert beside.high - beside.low < alone.high - alone.low
    assert pooled({"a": [0.5]})["a"].low == 0
    assert unpaired([1.0], [0.5]).low < 1  # two launches may differ by that
    assert unpaired([2.0], [0.5]).low > 1
    assert unpaired([3.0], [0.3, 0.0]).low > 1  # another launch does not make that less sure
    assert unpaired([0.5], [0.3, 0.0]).low < 1
    assert unpaired([0.7], [0.0, 0.03]).low > 1  # launches that agree, and one unmodified
    assert unpaired([0.7], [0.0, 0.03], crowded=True).low < 1  # which others may have slowed alone
    assert unpaired([0.7, 0.71], [0.0, 0.03], crowded=True).low > 1
    found = unpaired([1.0, 1.01, 0.99], [0.5, 0.51])
    assert found.low < 1.65 < found.high and found.low > 1.5


def sized(arm: frozenset[str]) -> int:
    return int(next(iter(arm)).partition("=")[2]) if arm else 8


def test_a_sweep_ends_past_the_knee(tmp_path: Path) -> None:
    scenario = Scenario(lambda arm: 0.01 + sized(arm) * 0.0001, batch_size=sized, noise=0.001)
    swept = sweep(launcher(scenario, tmp_path))
    assert swept.found == 8
    assert swept.knee == 2048  # 95 % of the 10,000 samples/s that 0.1 ms a sample allow
    assert swept.ended == "two doublings in a row gave nothing"
    assert "<- knee" in render_sweep(swept)


def test_a_script_past_the_knee_is_told_so_and_not_that_less_is_faster(tmp_path: Path) -> None:
    scenario = Scenario(
        lambda arm: 0.001 * sized(arm),
        batch_size=sized,
        host_bytes=lambda arm: 1e9 + sized(arm) * 1e7,
        noise=0,
    )
    bench = launcher(scenario, tmp_path)
    swept = sweep(bench)
    assert list(swept.sizes) == [2, 4, 8, 16, 32]
    assert (swept.found, swept.knee, swept.best) == (8, 2, 8)
    document = sweep_json(swept, bench, ["python", "train.py"])
    assert document["best"]["remedies"] == []
    assert [finding["id"] for finding in document["findings"]] == ["device/batch-past-the-knee"]
    assert "past the knee" in render_sweep(swept)


def test_a_size_that_does_not_fit_ends_the_sweep_with_its_reason(tmp_path: Path) -> None:
    failed = Ran(exit_code=1, wall_s=1.0, last_words="torch.OutOfMemoryError")
    scenario = Scenario(lambda arm: 0.01, batch_size=sized, fails={"batch-size=32": failed}, noise=0.001)
    swept = sweep(launcher(scenario, tmp_path))
    assert list(swept.sizes) == [8, 16, 32]
    assert "OutOfMemoryError" in swept.ended
    assert swept.knee == 16


def test_what_has_no_live_form_is_tried_as_a_patch() -> None:
    evidence = Scenario(factors(), ())._evidence(frozenset(), 0.04)
    rare = finding("cadence/evaluation", "less-frequent-evaluation", every_nth=75)

    def told(allow: Effect, cannot: Callable[[Arm], str], have: Arm = ()) -> tuple[list[str], list[str]]:
        found = ideas.ideas(evidence, (rare,), have, Limits(allow=allow), (), cannot=cannot)
        return [one.name for one in found[0]], [one.words for one in found[1]]

    few = told("semantic", lambda arm: "" if arm[0].value < 10 else "75 times as rarely is never")
    assert few == (["less-frequent-evaluation=9"], [])
    most = "up to 2.00x, all that cadence/evaluation costs"
    assert told("semantic", lambda _: "no patch: x") == ([], [f"no patch: x; {most}"])
    assert told("numeric", lambda _: "") == ([], [f"semantic: needs --allow semantic; {most}"])
    # What a run under the patch asks for is of the code as it runs then.
    assert told("semantic", lambda _: "", (catalogue.parse("less-frequent-evaluation=9"),)) == ([], [])


def test_what_is_not_allowed_or_not_possible_is_told(tmp_path: Path) -> None:
    finding_by_hand = finding("cadence/evaluation", "less-frequent-evaluation")
    scenario = Scenario(factors(threads=1.5), (THREADS, finding_by_hand))
    left = {one.remedy: one for one in tune(scenario, tmp_path / "exact").left_out}
    assert left["threads"].why == "numeric: needs --allow numeric"
    assert left["less-frequent-evaluation"].by_hand
    assert left["less-frequent-evaluation"].words.endswith("x, all that cadence/evaluation costs")
    tuned = tune(Scenario(factors(threads=1.5), (THREADS,)), tmp_path / "numeric", allow="numeric")
    assert [str(one) for one in tuned.best] == ["threads=2"]
