"""``throttle-viewer`` in force: when the viewer is served, and what is never left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy
import pytest
import torch
from tests.remedy.test_live_forms import Context

from hotloop.probe.counting import StepCount
from hotloop.remedy.live.every_nth import ThrottledViewer

SERVED: list[int] = []
CONTEXT: list[Any] = []
PARAMETER: Final = torch.nn.Parameter(torch.ones(2))
OPTIMIZER: Final = torch.optim.SGD([PARAMETER], lr=0.1)


class Viewer:
    """Serves whoever is connected."""

    def poll(self, image: int) -> int:
        SERVED.append(image)
        return image


def train(step: int) -> None:
    SERVED.append(step)
    CONTEXT[0].count.backwards += 1


def finish(step: int) -> None:
    """The update, and what goes with it."""
    SERVED.append(step)
    CONTEXT[0].count.rounds += 1
    CONTEXT[0].count.updates += 1


def train_each_fifth(step: int) -> None:
    SERVED.append(step)
    CONTEXT[0].count.backwards += step % 5 == 4


def train_late(step: int) -> None:
    SERVED.append(step)
    CONTEXT[0].count.backwards += step > 40


def noisy(step: int) -> None:
    SERVED.append(step)
    torch.rand(())


def noisy_in_numpy(step: int) -> None:
    SERVED.append(step)
    numpy.random.rand()


def cleared(step: int) -> None:
    SERVED.append(step)
    OPTIMIZER.zero_grad()


def scaled(step: int) -> None:
    SERVED.append(step)
    assert PARAMETER.grad is not None
    PARAMETER.grad.mul_(0.5)


def clamped(step: int) -> None:
    SERVED.append(step)
    with torch.no_grad():
        PARAMETER.clamp_(-1, 1)


def slowed(step: int) -> None:
    SERVED.append(step)
    OPTIMIZER.param_groups[0]["lr"] *= 0.9


def lost(step: int) -> None:
    SERVED.append(step)
    raise ConnectionError


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


def test_one_step_of_fifty_serves_the_viewer_that_was_looked_at(context: Any) -> None:
    form = put(context, "Viewer.poll")
    viewer = Viewer()
    for step in range(112):
        context.count.rounds += 1
        viewer.poll(step)
        viewer.poll(step)
    assert [step for step in (0, 1, 2, 3, 4, 54, 104) for _ in range(2)] == SERVED
    assert form.status() == "in effect"
    form.off()
    context.count.rounds += 1
    viewer.poll(112)
    assert SERVED[-1] == 112


def test_an_answer_that_is_read_is_given(context: Any) -> None:
    form = put(context, "Viewer.poll")
    viewer = Viewer()
    for step in range(30):
        context.count.rounds += 1
        assert viewer.poll(step) == step
    assert form.status().startswith("nothing in this run")


def test_a_viewer_polled_now_and_then_is_served(context: Any) -> None:
    put(context, "Viewer.poll")
    viewer = Viewer()
    for step in range(0, 100, 5):
        context.count.rounds += 5
        viewer.poll(step)
    assert list(range(0, 100, 5)) == SERVED


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("train", "trains"),
        ("train_each_fifth", "trains"),
        ("finish", "trains"),
        ("noisy", "draws random numbers"),
        ("noisy_in_numpy", "draws random numbers"),
        ("cleared", "changes what is trained"),
        ("scaled", "changes what is trained"),
        ("clamped", "changes what is trained"),
        ("slowed", "changes what is trained"),
    ],
)
def test_what_does_more_than_serve_is_no_viewer(context: Any, name: str, what: str) -> None:
    form = put(context, name)
    for step in range(30):
        PARAMETER.grad = torch.ones(2)
        OPTIMIZER.step()
        context.count.rounds += name != "finish"
        globals()[name](step)
    assert len(SERVED) == 30
    assert form.status() == f"test_viewing.py:{name} {what}: it is left as it is"


def test_what_was_left_out_before_it_trained_is_told(context: Any) -> None:
    form = put(context, "train_late")
    for step in range(100):
        context.count.rounds += 1
        train_late(step)
    assert len(SERVED) == 10 + 1 + 40
    assert form.status().endswith("trains: it is left as it is, 49 calls were left out before")


def test_a_call_that_ends_in_an_error_was_not_looked_at(context: Any) -> None:
    put(context, "lost")
    for step in range(20):
        context.count.rounds += 1
        with contextlib.suppress(ConnectionError):
            lost(step)
    assert len(SERVED) == 20


def test_a_function_is_put_back(context: Any) -> None:
    before = Viewer.poll.__code__
    put(context, "Viewer.poll")
    assert Viewer.poll.__code__ is not before
    context.hooks.undo()
    assert Viewer.poll.__code__ is before
