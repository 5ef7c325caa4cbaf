"""``throttle-viewer`` in force: when the viewer is served, and what is never left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.remedy.test_live_forms import Context

from hotloop.probe.counting import StepCount
from hotloop.remedy.live.viewing import ThrottledViewer

SERVED: list[int] = []
CONTEXT: list[Any] = []


class Viewer:
    """Serves whoever is connected."""

    def poll(self, image: int) -> int:
        SERVED.append(image)
        return image


def train(step: int) -> None:
    SERVED.append(step)
    CONTEXT[0].count.backwards += 1


@pytest.fixture
def context() -> Iterator[Any]:
    found: Any = Context()
    found.count = StepCount()
    SERVED.clear()
    CONTEXT[:] = [found]
    yield found
    found.hooks.undo()
    assert not found.errors


def put(context: Any, name: str) -> ThrottledViewer:
    form = ThrottledViewer(context, f"{Path(__file__).name}:{name}")
    form.install()
    context.update()
    return form


def test_one_step_of_fifty_serves_the_viewer(context: Any) -> None:
    form = put(context, "Viewer.poll")
    viewer = Viewer()
    for step in range(101):
        context.count.rounds += 1
        viewer.poll(step)
        viewer.poll(step)
    assert SERVED == [0, 0, 50, 50, 100, 100]
    assert form.status() == "in effect"
    form.off()
    context.count.rounds += 1
    viewer.poll(101)
    assert SERVED[-1] == 101


def test_an_answer_that_is_read_is_given(context: Any) -> None:
    form = put(context, "Viewer.poll")
    viewer = Viewer()
    for step in range(10):
        context.count.rounds += 1
        assert viewer.poll(step) == step
    assert form.status().startswith("nothing in this run")


def test_a_viewer_polled_now_and_then_is_served(context: Any) -> None:
    put(context, "Viewer.poll")
    viewer = Viewer()
    for step in range(0, 20, 5):
        context.count.rounds += 5
        viewer.poll(step)
    assert SERVED == [0, 5, 10, 15]


def test_what_trains_is_no_viewer(context: Any) -> None:
    form = put(context, "train")
    for step in range(10):
        context.count.rounds += 1
        train(step)
    assert len(SERVED) == 10
    assert form.status().endswith("test_viewing.py:train trains: it is left as it is")


def test_a_function_is_put_back(context: Any) -> None:
    before = Viewer.poll.__code__
    put(context, "Viewer.poll")
    assert Viewer.poll.__code__ is not before
    context.hooks.undo()
    assert Viewer.poll.__code__ is before
