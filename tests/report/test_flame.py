"""The flame graph: stacks as a tree, drawn in a real Chromium."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from chromium import Chromium, in_chromium
from report_samples import full

from hotloop.measure.steps import StackCost
from hotloop.report import flame, html


def stack(phase: str, seconds: float, *names: str) -> StackCost:
    return StackCost(
        phase=phase, frames=tuple((name, f"/app/{name}.py", 7) for name in names), seconds=seconds
    )


STACKS = (
    stack("data_wait", 3.0, "main", "load", "decode"),
    stack("data_wait", 1.0, "main", "load"),
    stack("forward", 2.0, "main", "net"),
    stack("forward", 0.001, "main", "rare", "rarer"),
)


def of(node: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        node = next(child for child in node["children"] if child["name"] == name)
    return node


def test_a_box_holds_the_seconds_of_all_that_it_calls() -> None:
    tree = flame.tree(STACKS)
    assert tree is not None
    assert tree["s"] == pytest.approx(6.001)
    assert [child["name"] for child in tree["children"]] == ["data wait", "forward"]
    assert of(tree, "data wait", "main", "load")["s"] == 4.0
    assert of(tree, "data wait", "main", "load", "decode") == {
        "name": "decode", "file": "/app/decode.py", "line": 7, "s": 3.0,
    }  # fmt: skip
    assert [child["name"] for child in of(tree, "forward", "main")["children"]] == ["net"], "too small to see"


def test_without_samples_there_is_none() -> None:
    assert flame.tree(()) is None


def test_deep_recursion_is_cut() -> None:
    tree = flame.tree([stack("other", 1.0, *["f"] * 3000)])
    assert tree is not None
    assert "children" in of(tree, "other", "f", "f")


@in_chromium
def test_boxes_are_drawn_zoomed_and_found(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(html.render({**full(), "flame": flame.tree(STACKS)}), encoding="utf-8")
    with Chromium() as browser:
        browser.open(page)
        boxes = "[...document.querySelectorAll('.flame g')]"
        name = "g.querySelector('title').textContent.split('\\n')[0]"
        wide = f"{boxes}.map(g => [{name}, +g.querySelector('rect').getAttribute('width')])"
        before = dict(browser.run(wide))
        assert before["load"] == pytest.approx(before["training thread"] * 4 / 6, rel=0.02)
        browser.run(f"{boxes}.find(g => {name} === 'load').dispatchEvent(new Event('click'))")
        after = dict(browser.run(wide))
        assert "net" not in after
        assert after["load"] == pytest.approx(before["training thread"], rel=0.01)
        browser.run("document.querySelector('#flame input').value = 'DECODE'")
        browser.run("document.querySelector('#flame input').dispatchEvent(new Event('input'))")
        assert browser.run("document.querySelector('#flame output').textContent") == "75 % of the width"
        assert browser.run("document.querySelectorAll('.flame .hit').length") == 1
        browser.run("document.querySelector('#flame button').click()")
        assert dict(browser.run(wide))["load"] == before["load"]
        browser.run("document.querySelector('.flame').focus()")
        said = "document.querySelector('#flame output').textContent"
        for key, reached in (("ArrowDown", "data wait"), ("ArrowRight", "forward"), ("ArrowDown", "main")):
            browser.press(key)
            assert browser.run(said).startswith(f"{reached}, ")
        browser.press("Enter")
        assert "load" not in dict(browser.run(wide)), "only what is under it has its width"
        browser.press("Escape")
        browser.press("Escape")
        assert dict(browser.run(wide))["load"] == before["load"]
        assert browser.problems() == []
