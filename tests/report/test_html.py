"""The page: self-contained, safe against what is in the run, complete."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from report_samples import empty, full, healthy

from hotloop.report import html

VOID = {"meta", "link", "br"}


class Page(HTMLParser):
    """Reads a page the way a browser does: elements, visible text, scripts; notes what is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text.append(data)

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(html.render(full()))


@pytest.mark.parametrize("report", [full(), healthy(), empty()], ids=["full", "healthy", "empty"])
def test_every_element_is_closed_and_every_id_is_there_once(report: dict[str, Any]) -> None:
    found = Page(html.render(report))
    assert found.wrong == [] and found.open == []
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [attributes["href"] for tag, attributes in found.elements if tag == "a"]
    assert all(str(target)[1:] in ids for target in targets if str(target).startswith("#"))


def test_each_finding_has_a_link_that_stays() -> None:
    found = Page(html.render({**full(), "findings": full()["findings"] * 2}))
    links = [attributes["href"] for _, attributes in found.elements if attributes.get("class") == "link"]
    assert len(set(links)) == 24 and {"#input/slow-sample", "#input/slow-sample-2"} <= set(links)
    assert {f"#{attributes.get('id')}" for _, attributes in found.elements} >= set(links)


def test_nothing_is_loaded_from_anywhere(page: Page) -> None:
    assert "src" not in {name for _, attributes in page.elements for name in attributes}
    hrefs = {attributes["href"] for tag, attributes in page.elements if tag == "link"}
    assert hrefs == {"data:,"}
    assert not re.search(r"url\((?!#)|@import", html.render(full()))


def test_what_the_run_contains_cannot_become_markup(page: Page) -> None:
    assert len(page.scripts) == 2
    words = page.words()
    assert '</script><script>alert("größer & <b>")</script>' in words
    assert "A <b>sentence</b> about cadence/evaluation & what it does" in words


def test_a_script_cannot_be_ended_from_its_data() -> None:
    report = full()
    report["charts"][0]["lines"][0]["label"] = "</script><!--<script>"
    found = Page(html.render(report))
    assert len(found.scripts) == 2
    assert json.loads(found.scripts[0])["charts"][3]["lines"][0]["label"] == "</script><!--<script>"


def test_it_stays_small_with_a_long_run_and_many_lines() -> None:
    report = full()
    report["findings"] *= 4
    report["lines"] *= 10
    assert len(html.render(report).encode()) < 1_000_000


def test_it_says_what_the_report_says(page: Page) -> None:
    words = page.words()
    for expected in (
        "Input-bound: the training loop spends 63 % of its time waiting for data.", "input/slow-sample",
        "Transform all frames once in __init__ and index the result.", "src/tcn_state/data/windows.py:19",
        "83 % of sampled worker time", "2.60 times as fast", "Worker 3 of rank 1 was killed",
        "rank 1 · slowest", "num_workers", "configs/überbau.yaml:12", "encoder.blocks.0", "AMD EPYC 9B14",
        "never read",
    ):  # fmt: skip
        assert expected in words


def test_the_line_of_a_finding_is_marked_in_its_source() -> None:
    excerpt = html.excerpt({"first": 7, "lines": ["    a = 1", "    b = '<'"]}, 8)
    marked = re.search(r'<span class="row hit">(.*?)\n', excerpt)
    assert marked and "&lt;" in marked.group(1) and ">8 <" in marked.group(1)


def test_a_healthy_run_says_so_and_a_run_without_steps_says_why() -> None:
    assert "Nothing worth fixing" in Page(html.render(healthy())).words()
    words = Page(html.render({**empty(), "exit_code": 2})).words()
    assert "cannot be looked into" not in words and "exit code 2" in words


def test_charts_have_data_of_equal_length() -> None:
    charts = json.loads(Page(html.render(full())).scripts[0])["charts"]
    assert [chart["id"] for chart in charts][:3] == ["phases", "throughput", "step-time"]
    assert {"cpu", "memory", "gpu", "workers", "disk", "loss"} <= {chart["id"] for chart in charts}
    for chart in charts:
        for line in chart["lines"]:
            if chart["kind"] == "stack":
                assert len(line["values"]) == len(chart["edges"]) - 1
            else:
                assert len(line["values"]) == len(line["t_s"])


def test_somebody_elses_gpu_is_not_shown() -> None:
    charts = {chart["id"]: chart for chart in full()["charts"]}
    assert [line["label"] for line in charts["gpu"]["lines"]] == ["GPU0"]


def test_the_page_of_a_rule_reads_inside_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "# input/slow-sample\n\nOne `line` of **text**\nand <b>more</b>.\n\n## When it is wrong\n- one\n"
        "  two\n- three\n\n```python\nx = 1\n\ny = 2\n```\n\n| a | b |\n|---|---|\n| 1 | `2` |\n\n"
        "See docs and [torch](https://pytorch.org)."
    )
    monkeypatch.setattr(html.pages, "page", lambda _: text)
    found = Page(html.page_of("input/slow-sample"))
    assert found.wrong == [] and found.words() == (
        "One line of text and <b>more</b>. When it is wrong one two three x = 1 y = 2 a b 1 2 "
        "See docs and torch ."
    )
    links = [attributes for tag, attributes in found.elements if tag == "a"]
    assert links == [{"href": "https://pytorch.org", "rel": "noreferrer"}]
