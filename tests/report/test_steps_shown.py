"""How long steps take, and one step as it ran: from rows, and drawn in a real Chromium."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Chromium, in_chromium
from report_samples import full, steps

from hotloop.phases import COLUMN, PHASES
from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Process
from hotloop.report import html
from hotloop.report.histogram import histogram
from hotloop.report.waterfall import waterfall

MS = 1_000_000


def test_steps_with_an_evaluation_or_a_checkpoint_are_counted_apart() -> None:
    measured = steps(1200)
    measured.phases[700, COLUMN["checkpoint"]] = 0.5
    found = histogram(measured)
    assert found is not None and found["log"] and len(found["edges_s"]) == len(found["steps"]) + 1
    totals = [sum(found[name]) for name in ("steps", "evaluation", "checkpoint")]
    assert totals == [1195, 4, 1]
    assert found["edges_s"][-2] < 3.0 < found["edges_s"][-1] and found["evaluation"][-1] >= 1


def test_few_steps_have_no_histogram_and_equal_ones_have() -> None:
    assert histogram(steps(19)) is None and histogram(None) is None
    equal = replace(steps(30), start_s=np.arange(30.0), end_s=np.arange(30.0) + 0.5)
    found = histogram(equal)
    assert found is not None and sum(found["steps"]) == 30 and not found["log"]


def process(*, missing: bool = False) -> Process:
    """Three steps of 10, 10 and 30 ms; the worker is at a batch from 5 to 25 ms."""
    rows = []
    for at, wait in ((0, 4), (10, 4), (20, 24)):
        rows += [
            (at * MS, wait * MS, 16, 1, 1, 0, 0, row.FETCH),
            ((at + wait) * MS, 3 * MS, 0, 1, 1, 0, row.FORWARD_GRAD, row.FORWARD),
            ((at + wait + 1) * MS, MS, 0, 1, 1, 0, 0, row.SYNC),
            ((at + wait + 3) * MS, 3 * MS, 0, 0, 0, 0, 0, row.BACKWARD),
        ]
    made = [(5 * MS, 20 * MS, 0, 0, 2, 16, 0, row.MAKE)]
    fields: dict[str, Any] = {"ppid": 1, "rank": 0, "start_ns": 0, "end_ns": 60 * MS, "notes": {}}
    worker = Process(pid=8, role="worker", rows=np.array(made, ROW_DTYPE), **fields)
    table = np.array(rows[:0] if missing else rows, ROW_DTYPE)
    sites = {"site": [{"id": 1, "file": "/a/t.py", "line": 3}], "process": [{"cwd": "/a"}]}
    return Process(pid=7, role="main", rows=table, workers=(worker,), **{**fields, "notes": sites})


def measured() -> Any:
    start, end = np.array([0.0, 0.010, 0.020]), np.array([0.010, 0.020, 0.050])
    phases = np.zeros((3, len(PHASES)))
    return replace(steps(3), start_s=start, end_s=end, phases=phases, steady=np.array([False, True, True]))


def test_a_typical_step_and_the_slowest_show_the_loop_and_what_workers_did_meanwhile() -> None:
    typical, slowest = waterfall(process(), measured())
    assert (typical["kind"], typical["step"]) == ("typical", 1)
    assert (slowest["kind"], slowest["step"], slowest["seconds"]) == ("slowest", 2, pytest.approx(0.03))
    loop, worker = typical["lanes"]
    assert [(span[2], span[3]) for span in loop["spans"]] == [
        (0, "data_wait"), (0, "forward"), (1, "sync"), (0, "backward"),
    ]  # fmt: skip
    assert loop["spans"][0][4] == "next batch, 16 samples at t.py:3"
    assert worker["label"] == "worker 1"
    assert worker["spans"] == [[-0.005, 0.02, 0, "data_wait", "make a batch, 16 samples"]]


def test_a_step_without_rows_is_not_shown() -> None:
    assert waterfall(process(missing=True), measured()) == []
    assert waterfall(None, measured()) == [] and waterfall(process(), None) == []


@in_chromium
def test_both_are_drawn_and_a_step_is_zoomed_by_mouse_and_keys(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.render({**full(), "waterfall": waterfall(process(), measured())}), encoding="utf-8")
    width = "+document.querySelector('#waterfall .lanes g:nth-of-type({}) rect').getAttribute('width')"
    with Chromium() as browser:
        browser.open(page, width=1400)
        assert browser.run("document.querySelectorAll('#histogram .count').length") >= 5
        before = browser.run(width.format(2))
        browser.run(
            "document.querySelector('#waterfall .lanes g:nth-of-type(2)').dispatchEvent(new Event('click'))"
        )
        said = "document.querySelector('#waterfall output').textContent"
        assert browser.run(said) == "forward at t.py:3: 3 ms, from 4 ms"
        shown = "[...document.querySelectorAll('#waterfall .lanes g title')].map(t => t.textContent).join()"
        assert "next batch" not in browser.run(shown)
        browser.run("document.querySelector('#waterfall .lanes').focus()")
        for key in ("Escape", "ArrowRight", "ArrowRight"):
            browser.press(key)
        assert browser.run(said).startswith("forward") and browser.run(width.format(2)) == before
        browser.run("document.querySelectorAll('#waterfall button')[1].click()")
        assert "24 ms" in browser.run(shown)
        browser.open(page, width=400, height=800, mobile=True)
        assert browser.run("document.documentElement.scrollWidth") <= 400
        assert browser.problems() == []
