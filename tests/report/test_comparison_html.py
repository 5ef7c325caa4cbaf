"""The page of a comparison: both sides, what moved, findings gone and new; drawn in a real Chromium."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chromium import Chromium, in_chromium
from report_samples import STEP, findings, recording, steps

from hotloop.compare.comparison import Group, compare
from hotloop.compare.run import Run, trace_of
from hotloop.report import comparison_html


def side(label: str, data_wait: float, *, names: tuple[str, ...]) -> Group:
    measured, seen = steps(step={**STEP, "data_wait": data_wait}), recording(1)
    found = tuple(one for one in findings() if one.id in names)
    trace = trace_of(seen.ranks[0], measured)
    run = Run(label=label, recording=seen, ranks=(measured,), traces=(trace,), findings=found)
    return Group(label=label, runs=(run,))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    groups = [
        side("base", 0.06, names=("input/slow-sample", "cadence/evaluation")),
        side("<b>fixed", 0.02, names=("cadence/evaluation", "host/sync-in-step")),
    ]
    found = compare(groups)
    path = tmp_path_factory.mktemp("page") / "compare.html"
    path.write_text(comparison_html.render(groups, found), encoding="utf-8")
    return path


def test_it_says_how_fast_what_moved_and_which_findings_are_gone_and_new(page: Path) -> None:
    text = re.sub(r"<[^>]+>", " ", page.read_text().partition("<script")[0])
    words = " ".join(text.split())
    assert re.search(r"&lt;b&gt;fixed against base: 1\.\d\d times the speed, which may be noise", words)
    assert "Results: not recorded" in words and "one launch of a side" in words
    assert re.search(r"data wait 60\.\d ms 20\.\d ms \(-6\d %\)", words)
    for name, before, after in (
        ("input/slow-sample", "found", "gone"),
        ("cadence/evaluation", "found", "found"),
        ("host/sync-in-step", "–", "new"),
    ):
        assert re.search(rf"{name} [^/]* {before} {after}", words), name


@in_chromium
@pytest.mark.parametrize(("width", "mobile"), [(1400, False), (400, True)])
def test_bars_have_one_scale_and_the_page_its_width(page: Path, width: int, mobile: bool) -> None:
    with Chromium() as browser:
        browser.open(page, width=width, height=900, mobile=mobile)
        wide = "[...document.querySelectorAll('#time .bar')].map(b => b.getBoundingClientRect().width)"
        base, fixed = browser.run(wide)
        assert fixed / base == pytest.approx(0.62, abs=0.06)
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelectorAll('.axis .reach').length") == 1
        assert browser.problems() == [] and browser.requests() == [page.resolve().as_uri()]
