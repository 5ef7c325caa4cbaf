"""Every renderer takes every measured scenario: what measuring makes is what the report reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from report_samples import recording
from tests.scenarios.loops import SCENARIOS

from hotloop.measure.measure import measure
from hotloop.report import html, model, perfetto, terminal
from hotloop.report import json as report_json


@pytest.fixture(scope="module", params=sorted(SCENARIOS))
def run(request: pytest.FixtureRequest) -> tuple[Any, Any, dict[str, Any]]:
    process = SCENARIOS[request.param]().process
    found = recording(0, ranks=(process,), start_ns=process.start_ns, system={}, process_system={})
    steps = measure(process)
    return found, steps, model.build(found, [steps], [], bottleneck="device", verdict="Compute-bound.")


def test_json(run: tuple[Any, Any, dict[str, Any]]) -> None:
    _, steps, report = run
    assert json.loads(report_json.render(report)) == report
    assert report["num_steps"] == steps.num_steps
    assert sum(phase["share"] for phase in report["phases"]) == pytest.approx(1.0, abs=1e-6)


def test_terminal(run: tuple[Any, Any, dict[str, Any]]) -> None:
    report = run[2]
    text = terminal.render(report)
    assert f"{report['num_steps']:,} steps" in text
    assert all(len(line) <= 80 for line in text.splitlines() if not line.startswith("report: "))


def test_html(run: tuple[Any, Any, dict[str, Any]]) -> None:
    text = html.render(run[2])
    assert text.startswith("<!doctype html>") and text.endswith("</html>\n")
    assert 'id="chart-phases"' in text


def test_perfetto(run: tuple[Any, Any, dict[str, Any]]) -> None:
    found, steps, _ = run
    events = json.loads(perfetto.render(found, [steps]))["traceEvents"]
    drawn = [event for event in events if event.get("cat") == "step"]
    assert len(drawn) == steps.num_steps
    took_us = (steps.end_s - steps.start_s).sum() * 1e6
    assert sum(event["dur"] for event in drawn) == pytest.approx(took_us, rel=1e-6)
