"""The page in a real Chromium: no errors, no requests, charts that answer, both themes, a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, find
from report_samples import empty, full, healthy, steps

from hotloop.logs.analyze import analyze
from hotloop.report import analysis_html, html
from hotloop.report.series import series

pytestmark = [pytest.mark.browser, pytest.mark.skipif(find() is None, reason="no Chromium here")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report with ü.html"
    path.write_text(html.render(full()), encoding="utf-8")
    return path


def box(browser: Chromium, selector: str) -> dict[str, float]:
    text = browser.run(f"JSON.stringify(document.querySelector({selector!r}).getBoundingClientRect())")
    found: dict[str, float] = json.loads(text)
    return found


def show(browser: Chromium, id_: str) -> dict[str, float]:
    """Scroll to a chart; where it is then."""
    browser.run(f"document.getElementById({id_!r}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
    return box(browser, f"#{id_}")


def test_it_opens_without_an_error_and_asks_for_nothing(browser: Chromium, page: Path) -> None:
    browser.open(page)
    charts = browser.run("document.querySelectorAll('.plot[tabindex]').length")
    assert charts >= 10
    assert browser.run("document.documentElement.dataset.ready") == str(charts)
    assert browser.run("document.querySelectorAll('.plot path').length") >= charts
    assert browser.problems() == []
    assert browser.requests() == [page.resolve().as_uri()]
    paths = browser.run(
        "[...document.querySelectorAll('.plot path')].map(p => p.getAttribute('d')).join(' ')"
    )
    assert "NaN" not in paths and "undefined" not in paths and "Infinity" not in paths


def test_the_times_of_few_steps_are_bars(browser: Chromium, tmp_path: Path) -> None:
    path = tmp_path / "few.html"
    path.write_text(html.render({**full(), "series": series(steps(20))}), encoding="utf-8")
    browser.open(path)
    assert browser.run("document.querySelectorAll('#chart-step-time .pillar').length") >= 16


def test_hovering_tells_the_values_there(browser: Chromium, page: Path) -> None:
    browser.open(page)
    at = show(browser, "chart-phases")
    browser.move_mouse(at["x"] + at["width"] / 3, at["y"] + at["height"] / 2)
    words = browser.run("document.querySelector('#chart-phases .tip').innerText")
    assert "data wait" in words and "%" in words
    other = "document.querySelector('#chart-throughput .cursor')"
    assert browser.run(f"{other}.getAttribute('visibility')") == "visible"


def test_a_chart_can_be_read_with_the_keyboard(browser: Chromium, page: Path) -> None:
    browser.open(page)
    browser.run("document.getElementById('chart-throughput').focus()")
    browser.press("ArrowRight")
    assert "throughput" in browser.run("document.querySelector('#chart-throughput .tip').innerText")


def test_a_stroke_over_a_chart_zooms_every_chart_of_its_axis(browser: Chromium, page: Path) -> None:
    def shown() -> list[list[float]]:
        return [list(browser.run(f"plots.find(p => p.spec.id === '{id_}').domain")) for id_ in ids]

    def mouse(kind: str, share: float, clicks: int = 1) -> None:
        place = {"x": at["x"] + 52 + share * (at["width"] - 60), "y": at["y"] + 40}
        browser.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=clicks, **place)

    ids = ("step-time", "cpu", "loss")
    browser.open(page)
    at = show(browser, "chart-step-time")
    whole = shown()
    for kind, share in (("mousePressed", 0.75), ("mouseMoved", 0.6), ("mouseReleased", 0.5)):
        mouse(kind, share)
    end = whole[0][1]
    assert shown() == [pytest.approx([0.5 * end, 0.75 * end], rel=0.01)] * 2 + whole[2:]
    ticks = browser.run("[...document.querySelectorAll('#chart-cpu text')].map(t => t.textContent)")
    assert "0 s" not in ticks and len(set(ticks)) == len(ticks)
    for clicks in (1, 2):
        mouse("mousePressed", 0.5, clicks), mouse("mouseReleased", 0.5, clicks)
    assert shown() == whole
    browser.run("document.getElementById('chart-step-time').focus()")
    browser.press("+")
    assert shown()[1] == pytest.approx([0.25 * end, 0.75 * end], rel=0.01)
    browser.run("document.querySelector('#chart-cpu').previousElementSibling.click()")
    assert shown() == whole
    mouse("mousePressed", 0.75)  # let go elsewhere: it is no stroke when the mouse comes back
    at["y"] -= 200
    mouse("mouseReleased", 0.75)
    browser.run("document.querySelector('#chart-step-time .brushed').setAttribute('width', 0)")
    browser.move_mouse(at["x"] + 200, at["y"] + 240)
    assert browser.run("document.querySelector('#chart-step-time .brushed').getAttribute('width')") == "0"


def test_many_lines_can_be_filtered(browser: Chromium, tmp_path: Path) -> None:
    path, report = tmp_path / "lines.html", full()
    path.write_text(html.render({**report, "lines": report["lines"] * 4}), encoding="utf-8")
    browser.open(path)
    rows = "[...document.querySelectorAll('#lines .lines > details')].filter(e => e.checkVisibility()).length"
    for wanted, left in (("windows.py", 4), ("Perspective", 4), ("SCALER.transform", 4), ("nowhere", 0)):
        browser.run("document.querySelector('#lines .filter').select()")
        browser.call("Input.insertText", text=wanted)
        assert browser.run(rows) == left
        assert browser.run("document.querySelector('#lines output').textContent") == f"{left} of 12"


def test_print_cuts_nothing(browser: Chromium, tmp_path: Path) -> None:
    path, report = tmp_path / "print.html", full()
    report["loaders"][0]["settings"]["sampler"] = "torch.utils.data." + "sampler" * 20
    path.write_text(html.render(report), encoding="utf-8")
    browser.open(path, width=740)  # a page of letter paper
    browser.call("Emulation.setEmulatedMedia", media="print")
    cut = "e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > innerWidth"
    assert browser.run(f"[...document.querySelectorAll('.scroll, pre, td, .card')].filter({cut}).length") == 0


def test_a_phone_needs_no_scrolling_sideways(browser: Chromium, page: Path) -> None:
    browser.open(page, width=400, height=800, mobile=True)
    browser.run("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.run("document.documentElement.scrollWidth") <= 400
    cut = "e => e.clientWidth && e.scrollWidth > e.parentElement.clientWidth"
    assert browser.run(f"[...document.querySelectorAll('.bar b')].filter({cut}).length") == 0
    table = "document.querySelector('#time .scroll')"
    assert browser.run(f"{table}.scrollWidth <= {table}.clientWidth")


def contrast(browser: Chromium, selector: str) -> float:
    """Contrast of an element's text against the page, by WCAG's formula."""
    return float(
        browser.run(
            """(() => {
            const light = (css) => {
              const [r, g, b] = css.match(/[\\d.]+/g).map(Number)
                .map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
              return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const text = light(getComputedStyle(document.querySelector(SELECTOR)).color);
            const page = light(getComputedStyle(document.body).backgroundColor);
            return (Math.max(text, page) + 0.05) / (Math.min(text, page) + 0.05);
            })()""".replace("SELECTOR", repr(selector))
        )
    )


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read_in_both_themes(browser: Chromium, page: Path, dark: bool) -> None:
    browser.open(page, dark=dark)
    code = ("code .c", "code .k", "code .s")
    for selector in ("h1", ".note", ".card .evidence", ".severity", *code, ".do", "th"):
        assert contrast(browser, selector) >= 4.5, selector


def test_the_reader_can_choose_the_theme(browser: Chromium, page: Path) -> None:
    browser.open(page)
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.run("document.getElementById('theme').click()")
    assert browser.run("document.getElementById('theme').textContent") == "Theme: dark"
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light
    browser.run("localStorage.clear()")


def test_reports_with_little_in_them_open_as_well(browser: Chromium, tmp_path: Path) -> None:
    for name, report in (("healthy", healthy()), ("empty", empty())):
        path = tmp_path / f"{name}.html"
        path.write_text(html.render(report), encoding="utf-8")
        browser.open(path)
        assert browser.problems() == []
        assert browser.run("document.querySelector('h1').textContent")


def test_an_analysis_opens_and_draws(browser: Chromium, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    seconds = [0.25] * 50 + [1.0] * 50
    log.write_text(
        "".join(f"step {i} loss 2.1 time {s:.2f}s data_time 0.1s\n" for i, s in enumerate(seconds))
    )
    path = tmp_path / "analysis.html"
    path.write_text(analysis_html.render(analyze([log])), encoding="utf-8")
    browser.open(path)
    assert browser.problems() == []
    assert browser.run("document.querySelectorAll('#chart-throughput-0 path.line').length") == 1
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_screenshot_shows_the_colours_of_the_bar(browser: Chromium, page: Path, tmp_path: Path) -> None:
    browser.open(page)
    picture = tmp_path / "page.png"
    browser.screenshot(picture, whole=False)
    from matplotlib.image import imread

    at = box(browser, ".bar")
    row = imread(picture)[int(at["y"] + 4), int(at["x"]) : int(at["x"] + at["width"]), :3]
    waiting = [0xE0 / 255, 0x7B / 255, 0x1A / 255]
    share = float((abs(row - waiting).max(axis=1) < 0.02).mean())
    expected = next(phase["span_share"] for phase in full()["phases"] if phase["name"] == "data_wait")
    assert share == pytest.approx(expected, abs=0.03)
