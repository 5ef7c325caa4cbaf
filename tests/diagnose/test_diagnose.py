"""The machinery: order, severity, overlaps, broken rules, bottleneck and verdict; and what every rule must
keep.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import evidence, input_run, line, on_accelerator, opposed, steps

from hotloop.diagnose.bottleneck import bottleneck, verdict
from hotloop.diagnose.diagnose import OVERLAPS, by_cost, diagnose, graded, is_noise, resolved, weighed
from hotloop.diagnose.evidence import RuleEntry, rules
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding, Place
from hotloop.measure.steps import DeviceUse
from hotloop.phases import CLASSES


def finding(id: str = "input/slow-sample", cost: float = 0.0, **fields: object) -> Finding:
    return Finding(
        id=id, message="It is slow.", advice="Make it fast.", evidence=("n",), cost_s_per_step=cost, **fields
    )


# -- every rule ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_a_rule_is_silent_on_nothing(rule: RuleEntry) -> None:
    assert list(rule(evidence(steps({}, num_steps=0)))) == []


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
@pytest.mark.parametrize("device", ["cpu", "accelerator"])
def test_a_rule_is_silent_on_a_healthy_run(rule: RuleEntry, device: str) -> None:
    run = steps({"data_wait": 0.0002, "forward": 0.02, "backward": 0.04, "optimizer": 0.005})
    if device == "accelerator":
        run = on_accelerator(run, device=DeviceUse(busy_ratio=0.97, idle_s_by_phase={"data_wait": 0.01}))
    found = [graded(item, run.step_s, Limits()) for item in rule(evidence(run))]
    assert [item for item in found if item.severity != "info"] == []


def test_overlaps_speak_of_rules_that_exist() -> None:
    ids = {rule.id for rule in rules()}
    assert {name for overlap in OVERLAPS for name in (overlap.loser, overlap.winner)} <= ids


# -- order --------------------------------------------------------------------------------------------------


def test_findings_are_sorted_by_severity_then_cost() -> None:
    known = [finding("a/b", 0.1), finding("c/d", 0.3), finding("e/f", 0.2), finding(severity="high")]
    assert [item.id for item in weighed(known, 1.0, Limits())] == ["c/d", known[3].id, "e/f", "a/b"]


def test_the_line_comes_before_the_setting_where_costs_tie() -> None:
    line = finding("input/slow-sample", 0.095, data={"share_of_make": 0.9})
    ordered = by_cost([finding("input/single-process", 0.100), line, finding("a/b", 0.01)], 0.1)
    assert [item.id for item in ordered] == ["input/slow-sample", "input/single-process", "a/b"]
    costs = [item.cost_s_per_step for item in ordered]
    assert costs == sorted(costs, reverse=True)


# -- severity -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "severity"),
    [
        (0.31, "high"),
        (0.30, "high"),
        (0.29, "medium"),
        (0.10, "medium"),
        (0.09, "low"),
        (0.05, "low"),
        (0.04, "info"),
    ],
)
def test_severity_follows_the_share(share: float, severity: str) -> None:
    graded_one = graded(finding(cost=share), 1.0, Limits())
    assert graded_one.severity == severity
    assert graded_one.share == pytest.approx(share)


def test_a_cost_is_never_more_than_the_step() -> None:
    assert graded(finding(cost=3.0), 1.0, Limits()).cost_s_per_step == 1.0


def test_a_finding_without_a_cost_keeps_its_severity() -> None:
    assert graded(finding("numerics/non-finite-loss", severity="high"), 1.0, Limits()).severity == "high"
    fixed = finding("numerics/x", 0.001, severity="high", data={"severity_fixed": True})
    assert graded(fixed, 1.0, Limits()).severity == "high"


def test_noise_is_not_mentioned() -> None:
    assert is_noise(graded(finding(cost=0.005), 1.0, Limits()), Limits())
    assert not is_noise(graded(finding(cost=0.03), 1.0, Limits()), Limits())


@pytest.mark.parametrize(
    ("other", "is_opposed"),
    [
        ({"advice": "Set num_workers=4."}, False),
        ({"advice": "Set num_workers=0."}, True),
        ({"remedies": ("no-workers",)}, True),
    ],
)
def test_two_that_advise_opposite_things_are_seen(other: dict[str, object], is_opposed: bool) -> None:
    more = replace(finding(), advice="Set num_workers=4 and pin_memory=True.", remedies=("num-workers",))
    assert bool(opposed([more, replace(finding(), **other)])) == is_opposed


# -- overlaps and broken rules ------------------------------------------------------------------------------


def test_one_line_is_said_once() -> None:
    here, there = Place(file="a.py", line=3), Place(file="a.py", line=9)
    slow, conversion = finding(where=here), finding("input/per-sample-conversion", where=here)
    assert resolved([slow, conversion]) == [conversion]
    elsewhere = replace(slow, where=there)
    assert resolved([elsewhere, conversion]) == [elsewhere, conversion]


@pytest.mark.parametrize(("cost", "kept"), [(0.46, 1), (0.4, 2)])
def test_a_line_whose_cost_lies_in_a_few_steps_is_told_as_that(cost: float, kept: int) -> None:
    here = Place(file="a.py", line=3)
    slow = replace(finding(cost=0.5), where=here)
    assert len(resolved([slow, replace(finding("trend/step-outliers", cost=cost), where=here)])) == kept


def test_a_broken_rule_is_told_and_does_not_stop_the_others() -> None:
    def broken(_: object) -> list[Finding]:
        raise ZeroDivisionError("nothing per nothing")

    def working(_: object) -> list[Finding]:
        return [finding("x/works", 0.5)]

    pair = (RuleEntry(id="x/broken", check=broken), RuleEntry(id="x/works", check=working))
    told: list[str] = []
    found = diagnose(evidence(steps({"forward": 1.0})), told.append, pair)
    assert [item.id for item in found] == ["x/works"]
    assert len(told) == 1
    assert "x/broken" in told[0]
    assert "nothing per nothing" in told[0]


# -- bottleneck and verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CLASSES if name != "startup"])
def test_the_bottleneck_is_the_class_with_the_largest_cost(name: str) -> None:
    phases = {"forward": 0.02, "backward": 0.02, CLASSES[name][0]: 0.1}
    assert bottleneck(steps(phases)) == name


def test_epoch_gaps_are_input() -> None:
    assert bottleneck(steps({"data_wait": 0.3, "epoch_gap": 0.3, "forward": 0.5})) == "input"


def test_no_step_has_no_bottleneck() -> None:
    nothing = steps({}, num_steps=0)
    assert bottleneck(nothing) == "none"
    assert "No training step" in verdict(nothing, ())
    compiled = verdict(replace(nothing, wall_s=100.0, compile_s=80.0), ())
    assert compiled == "No training step was seen: 1 min 20 s of 1 min 40 s were spent in torch.compile."
    first = line(9, 80.0, phase="other", nature="waiting", source="for batch in loader:")
    waited = replace(nothing, wall_s=100.0, lines=(first,), totals={**nothing.totals, "other": 80.0})
    assert "1 min 20 s of 1 min 40 s were spent waiting between the calls" in verdict(waited, ())


def test_startup_counts_only_in_a_run_longer_than_a_minute() -> None:
    run = steps({"forward": 0.1})
    short = replace(run, wall_s=50.0, totals={**run.totals, "startup": 40.0})
    long = replace(run, wall_s=90.0, totals={**run.totals, "startup": 80.0})
    assert bottleneck(short) == "device"
    assert bottleneck(long) == "startup"


def test_waiting_hidden_behind_the_device_is_the_devices() -> None:
    run = steps({"data_wait": 0.6, "forward": 0.2, "backward": 0.2})
    busy = on_accelerator(run, device=DeviceUse(busy_ratio=0.98, idle_s_by_phase={"data_wait": 1.0}))
    assert bottleneck(busy) == "device"
    idle = on_accelerator(run, device=DeviceUse(busy_ratio=0.4, idle_s_by_phase={"data_wait": 59.0}))
    assert bottleneck(idle) == "input"


def test_launching_is_still_the_device() -> None:
    run = steps({"data_wait": 0.1, "forward": 0.5, "backward": 0.4})
    bound = on_accelerator(
        run, device=DeviceUse(busy_ratio=0.1, idle_s_by_phase={"forward": 45.0, "backward": 35.0})
    )
    assert bottleneck(bound) == "device"


def test_a_wait_for_the_device_without_a_device_clock_is_the_devices() -> None:
    run = on_accelerator(steps({"data_wait": 0.2, "forward": 0.1, "backward": 0.1, "sync": 0.6}))
    assert bottleneck(run) == "device"


def test_a_healthy_run_hears_that_nothing_is_worth_fixing() -> None:
    run = steps({"data_wait": 0.001, "forward": 0.4, "backward": 0.5, "optimizer": 0.1})
    assert diagnose(evidence(run)) == ()
    assert verdict(run, ()).startswith("Nothing worth fixing: compute-bound")
    scored = replace(run, totals={**run.totals, "evaluation": 1.1 * run.span_s})
    assert "but evaluation outside the steps took" in verdict(scored, ())


def test_a_few_steps_are_not_called_healthy() -> None:
    said = verdict(steps({"forward": 1.0}, num_steps=4), ())
    assert "only 4 steps" in said
    assert "only 4 steps" in verdict(steps({"forward": 1.0}, num_steps=4), (), "a crowd")
    assert "Nothing worth fixing" not in said


def test_a_small_finding_is_not_called_the_cause_of_a_large_bottleneck() -> None:
    run = steps({"other": 0.06, "forward": 0.04})
    small = replace(finding(cost=0.005, severity="low"), share=0.05, message="Collating takes 5 ms.")
    said = verdict(run, (small,))
    assert "could not be named. Besides: collating takes" in said
    assert "First: collating" in verdict(run, (replace(small, share=0.4, severity="high"),))


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"setup": 60.0, "import torch": 20.0}, ", 55.0 s of it at data.py:41. Besides: collating"),
        ({"setup": 20.0, "import torch": 60.0}, ", 1 min 0 s of it import torch. Besides: collating"),
        ({"setup": 20.0, "import torch": 35.0}, "; what takes most of it could not be named. Besides"),
    ],
)
def test_what_takes_most_of_start_up_is_named(parts: dict[str, float], named: str) -> None:
    run = steps({"forward": 0.1}, lines=(line(41, 55.0, phase="startup"),), startup=parts)
    run = replace(run, wall_s=90.0, totals={**run.totals, "startup": 80.0})
    small = replace(finding(cost=0.005, severity="low"), share=0.05, message="Collating takes 5 ms.")
    assert f"Start-up takes 89 % of the run{named}" in verdict(run, (small,))


def test_a_bottleneck_that_is_noted_alone_is_said_to_be_unsure() -> None:
    run = steps({"logging": 0.06, "forward": 0.04})
    noted = replace(finding("cadence/logging", severity="info"), share=0.4, message="Logging takes 40 ms.")
    assert "not sure: logging" not in verdict(run, (replace(noted, id="memory/page-faults"),), "a crowd")
    assert "not sure: logging takes 40 ms. This is not sure" in verdict(run, (noted,), "a crowd")
    small = replace(noted, share=0.05, severity="low", message="Collating takes 5 ms.")
    assert "not sure: logging takes 40 ms. Besides: collating" in verdict(run, (small, noted))
    run, priced = steps({"forward": 1.0}), replace(noted, id="memory/page-faults", data={"at_least": True})
    assert "; worth a trial: logging takes 40 ms. Besides: collating" in verdict(run, (small, priced))
    assert "; worth a trial: logging takes 40 ms." in verdict(run, (priced,))
    said = verdict(run, (), moved={"other": 0.02, "data_wait": 0.16})
    assert "another 2 % to Python loops within forward, another 16 % to waiting for cores" in said


def test_the_verdict_names_the_first_cause() -> None:
    run = input_run(make_s=0.05, busy_s=0.01, lines=[line(12, 4.0, source="x = scaler.transform(raw)")])
    found = diagnose(evidence(run))
    said = verdict(run, found)
    assert said.startswith("Input-bound")
    assert "data.py:12" in said or "num_workers=0" in said


def test_a_wrong_result_is_said_before_a_slow_one() -> None:
    slow = finding(cost=0.5, severity="high")
    wrong = replace(
        finding("numerics/non-finite-loss", severity="high"), message="The loss is NaN from step 3."
    )
    assert "NaN" in verdict(steps({"forward": 1.0}), (slow, wrong))


def test_the_interval_of_a_cost_holds_it() -> None:
    generator = np.random.default_rng(0)
    waits = 0.05 + 0.005 * generator.standard_normal(100)
    run = steps({"data_wait": waits, "forward": 0.01}, loaders=input_run(make_s=0.05, busy_s=0.01).loaders)
    for found in diagnose(evidence(run, cores=8)):
        if found.cost_ci95 is not None:
            low, high = found.cost_ci95
            assert low <= found.cost_s_per_step <= high
            assert high - low < 0.2 * found.cost_s_per_step
