"""report.json says what the measured run says, and can always be read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import findings, full, full_steps, recording, steps

from hotloop.findings import Finding, Place
from hotloop.measure.steps import Interval, Steps
from hotloop.phases import PHASES
from hotloop.report import json as report_json
from hotloop.report import model
from hotloop.report.series import MAX_POINTS, series

SCHEMA_KEYS = {
    "schema", "command", "exit_code", "wall_s", "num_steps", "num_updates", "throughput", "phases",
    "bottleneck", "findings", "settings", "what_if", "memory", "overhead_s_per_step",
}  # fmt: skip


def build(*ranks: Steps, found: list[Finding] | None = None, **more: Any) -> dict[str, Any]:
    return model.build(recording(len(ranks), **more), ranks, found or [], bottleneck="device", verdict="v")


def test_it_holds_every_key_of_schema_1_and_survives_json() -> None:
    report = full()
    assert report.keys() >= SCHEMA_KEYS
    assert json.loads(report_json.render(report)) == report


def test_nan_and_infinity_become_null_wherever_they_hide() -> None:
    more: dict[str, Any] = {"cost_s_per_step": float("nan"), "data": {"x": np.float64("inf")}}
    odd = Finding(id="a/b", message="m", advice="a", evidence=(), **more)
    ranks = replace(full_steps(), facts={"a": [float("-inf"), np.nan]}, samples=np.full(1200, np.nan))
    report = build(ranks, found=[odd])
    text = report_json.render(report)  # raises on NaN
    assert "NaN" not in text and "Infinity" not in text
    assert report["facts"] == {"a": [None, None]}
    assert report["throughput"]["samples_per_s"] is None


def test_paths_that_are_not_utf8_can_still_be_written() -> None:
    place = Place(file="/data/\udcff.py", line=3)
    broken = Finding(id="a/b", message="m", advice="a", evidence=(), where=place)
    report = build(steps(20), found=[broken])
    report_json.render(report).encode("utf-8")


def test_shares_of_wall_time_sum_to_one_with_startup_and_unaccounted() -> None:
    phases = full()["phases"]
    assert sum(phase["share"] for phase in phases) == pytest.approx(1.0, abs=1e-9)
    assert [phase["name"] for phase in phases] == [*PHASES, "unaccounted"]
    assert phases[0]["share"] > 0.05 and phases[0]["span_share"] == 0


def test_seconds_per_step_are_those_of_the_training_span() -> None:
    report = build(steps(100, step={"forward": 0.01, "data_wait": 0.03}))
    phase = {phase["name"]: phase for phase in report["phases"]}
    assert phase["data_wait"]["s_per_step"] == pytest.approx(0.03, rel=0.1)
    assert phase["data_wait"]["span_share"] == pytest.approx(0.75, abs=0.03)


def test_throughput_is_that_of_the_steady_steps_with_an_interval_around_it() -> None:
    slow_start = steps(200, step={"forward": 0.01})
    slow_start.phases[:3] *= 50
    ends = 11.8 + np.cumsum(slow_start.phases.sum(axis=1))
    starts = np.concatenate([[11.8], ends[:-1]])
    found = build(replace(slow_start, start_s=starts, end_s=ends))["throughput"]
    assert found["steps_per_s"] == pytest.approx(100, rel=0.1)
    assert found["ci95"][0] < found["steps_per_s"] < found["ci95"][1]
    assert found["samples_per_s"] == pytest.approx(32 * found["steps_per_s"], rel=1e-6)


def test_samples_of_all_ranks_are_added_up() -> None:
    one, three = build(steps(200)), build(*(steps(200, rank=rank) for rank in range(3)))
    ratio = three["throughput"]["samples_per_s"] / one["throughput"]["samples_per_s"]
    assert ratio == pytest.approx(3, rel=0.1)


def test_the_rank_the_others_wait_for_is_named() -> None:
    def rank(number: int, wait: float, collective: float) -> Steps:
        return steps(200, rank=number, step={"data_wait": wait, "forward": 0.01, "collective": collective})

    assert build(rank(0, 0.01, 0.02), rank(1, 0.03, 0.001), rank(2, 0.01, 0.02))["slowest_rank"] == 1
    assert build(rank(0, 0.01, 0.02), rank(1, 0.01, 0.02))["slowest_rank"] is None


def test_waiting_inside_backward_does_not_hide_the_slowest_rank() -> None:
    def rank(number: int, wait: float, backward: float) -> Steps:
        return steps(200, rank=number, step={"data_wait": wait, "forward": 0.01, "backward": backward})

    assert build(rank(0, 0.01, 0.04), rank(1, 0.04, 0.01))["slowest_rank"] == 1


def test_a_run_without_training_processes_has_a_report() -> None:
    report = build(system={}, process_system={})
    assert report["num_steps"] == 0 and report["phases"] == [] and report["series"] == {}
    assert report["throughput"]["steps_per_s"] == 0.0


def test_a_process_without_steps_has_a_report() -> None:
    none = np.zeros(0)
    idle = steps(
        10, start_s=none, end_s=none, phases=np.zeros((0, len(PHASES))), samples=none,
        steady=none.astype(bool), span=(0.0, 0.0), span_totals={},
        totals={"startup": 2.0, "forward": 1.0}, wall_s=3.3,
    )  # fmt: skip
    report = build(idle)
    assert report["num_steps"] == 0
    assert {phase["name"]: round(phase["seconds"], 3) for phase in report["phases"]}["startup"] == 2.0


def test_findings_keep_their_order_and_carry_the_source_around_their_place() -> None:
    report = full()
    assert [finding["id"] for finding in report["findings"]] == [finding.id for finding in findings()]
    excerpt = report["findings"][0]["excerpt"]
    assert excerpt["first"] == 16 and "scaler.transform" in excerpt["lines"][19 - excerpt["first"]]
    assert report["findings"][2]["excerpt"] is None  # no text of that file in the recording


def test_what_could_not_be_seen_is_said_once() -> None:
    killed = build(steps(20), warnings=("lost rows", "lost rows"), complete=False)
    assert killed["warnings"][0] == "lost rows" and len(killed["warnings"]) == 2


@given(
    seconds=st.lists(st.floats(1e-4, 5.0), min_size=1, max_size=60),
    column=st.integers(1, len(PHASES) - 1),
    start=st.floats(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_bins_of_a_chart_add_up_to_the_measured_time(seconds: list[float], column: int, start: float) -> None:
    phases = np.zeros((len(seconds), len(PHASES)))
    phases[:, column] = seconds
    ends = start + np.cumsum(seconds)
    totals = {"startup": start, PHASES[column]: float(np.sum(seconds))}
    measured = steps(
        10, start_s=np.concatenate([[start], ends[:-1]]), end_s=ends, phases=phases, totals=totals,
        samples=np.ones(len(seconds)), steady=np.ones(len(seconds), bool), span=(start, float(ends[-1])),
        span_totals=totals, wall_s=float(ends[-1]),
    )  # fmt: skip
    found = series(measured)
    widths = np.diff(found["edges_s"])
    assert len(widths) <= MAX_POINTS
    drawn = float(np.sum(np.array(found["phases"].get(PHASES[column], 0.0)) * widths))
    unseen = 0.0005 * float(ends[-1])  # too thin for a pixel: not drawn
    assert drawn == pytest.approx(sum(seconds), rel=0.02, abs=unseen)
    steps_drawn = float(np.sum(np.array(found["steps_per_s"]) * widths))
    assert steps_drawn == pytest.approx(len(seconds), rel=0.01)


def test_the_report_speaks_about_the_rank_that_sets_the_pace() -> None:
    waiting = steps(200, rank=0, step={"data_wait": 0.001, "forward": 0.01, "backward": 0.04})
    slow = steps(200, rank=1, step={"data_wait": 0.03, "forward": 0.01, "backward": 0.01})
    report = build(waiting, slow)
    assert report["lead_rank"] == 1
    share = {phase["name"]: phase["span_share"] for phase in report["phases"]}
    assert share["data_wait"] == pytest.approx(0.6, abs=0.03)
    merged = {phase["name"]: phase["span_share"] for phase in report["phases_of_all_ranks"]}
    assert merged["data_wait"] == pytest.approx(0.3, abs=0.03)


def test_interruptions_are_counted_in_full_however_many_there_are() -> None:
    many = tuple(Interval(start_s=float(i), end_s=i + 0.5, after_step=10 * i) for i in range(2000))
    report = build(replace(steps(50), evaluations=many))
    assert len(report["evaluations"]) < 2000
    (evaluation,) = report["interruptions"]
    assert (evaluation["count"], evaluation["seconds"], evaluation["every_steps"]) == (2000, 1000.0, 10)
