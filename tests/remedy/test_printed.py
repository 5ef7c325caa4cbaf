"""``fewer-prints`` in force: which lines are printed, which left out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.remedy.test_live_forms import Context

from hotloop.probe.counting import StepCount
from hotloop.remedy.live.printed import FewerPrints


@pytest.fixture
def context() -> Iterator[Any]:
    found: Any = Context()
    found.count = StepCount()
    found.user_frame = lambda frame: frame
    yield found
    found.hooks.undo()
    assert not found.errors


def form_of(context: Any, every: int) -> FewerPrints:
    form = FewerPrints(context, every)
    form.install()
    return form


def test_what_a_step_prints_is_printed_whole_or_not_at_all(
    context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    form = form_of(context, 4)
    print("before training")
    for step in range(9):
        context.count.rounds += 1
        print("step", step)
        for name in ("weight", "bias"):
            print(name, step)
    steps = [line for step in (0, 4, 8) for line in (f"step {step}", f"weight {step}", f"bias {step}")]
    assert capsys.readouterr().out.splitlines() == ["before training", *steps]
    assert form.status() == "in effect: 9 of 27 calls printed"


def test_what_comes_with_some_steps_only_is_printed(context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    form_of(context, 50)
    for step in range(20):
        context.count.rounds += 1
        if step % 5 == 0:
            print("epoch ends", step)
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_files_of_the_script_are_whole(context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    form_of(context, 50)
    file = io.StringIO()
    for step in range(20):
        context.count.rounds += 1
        print(step, file=file)
        print(step, file=sys.stderr)
    assert len(file.getvalue().splitlines()) == 20
    assert capsys.readouterr().err.splitlines() == ["0"]


def test_what_a_library_prints_is_printed(context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    form_of(context, 50)
    context.user_frame = lambda frame: None
    for step in range(20):
        context.count.rounds += 1
        print(step)
    assert len(capsys.readouterr().out.splitlines()) == 20


def test_print_is_put_back(context: Any) -> None:
    before = print
    form_of(context, 4)
    assert print is not before
    context.hooks.undo()
    assert print is before
