"""``fewer-prints`` in force: which lines are printed, which left out."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.remedy.test_live_forms import Context

from hotloop.probe.counting import StepCount
from hotloop.remedy.live import every_nth
from hotloop.remedy.live.every_nth import FewerPrints

Screen = pytest.CaptureFixture[str]


@pytest.fixture
def context() -> Iterator[Any]:
    found: Any = Context()
    found.count = StepCount()
    found.user_frame = lambda frame: frame
    yield found
    found.hooks.undo()
    assert not found.errors


@pytest.fixture
def screen(capfd: Screen, monkeypatch: pytest.MonkeyPatch) -> Screen:
    """In the place of standard output and error."""
    monkeypatch.setattr(every_nth, "_SCREEN", (sys.stdout.fileno(), sys.stderr.fileno()))
    return capfd


def form_of(context: Any, every: int) -> FewerPrints:
    form = FewerPrints(context, every)
    form.install()
    return form


def test_what_a_step_prints_is_printed_whole_or_not_at_all(context: Any, screen: Screen) -> None:
    form = form_of(context, 4)
    print("before training")
    for step in range(9):
        context.count.rounds += 1
        print("step", step)
        for name in ("weight", "bias"):
            print(name, step)
    steps = [line for step in (0, 4, 8) for line in (f"step {step}", f"weight {step}", f"bias {step}")]
    assert screen.readouterr().out.splitlines() == ["before training", *steps]
    assert form.status() == "in effect: 9 of 27 calls printed"


def test_what_comes_with_some_steps_only_is_printed(context: Any, screen: Screen) -> None:
    form_of(context, 50)
    for step in range(20):
        context.count.rounds += 1
        if step % 5 == 0:
            print("epoch ends", step)
    assert len(screen.readouterr().out.splitlines()) == 4


def test_files_of_the_script_are_whole(context: Any, screen: Screen) -> None:
    form_of(context, 50)
    file = io.StringIO()
    for step in range(20):
        context.count.rounds += 1
        print(step, file=file)
        print(step, file=sys.stderr)
    assert len(file.getvalue().splitlines()) == 20
    assert screen.readouterr().err.splitlines() == ["0"]


def test_a_file_given_by_position_and_one_in_the_place_of_the_output_are_the_scripts(
    context: Any, screen: Screen
) -> None:
    tqdm = pytest.importorskip("tqdm").tqdm
    form_of(context, 50)
    given, redirected = io.StringIO(), io.StringIO()
    for step in range(20):
        context.count.rounds += 1
        tqdm.write(f"step {step}", given)
        tqdm.write(f"step {step}")
        with contextlib.redirect_stdout(redirected):
            print(step)
    assert len(given.getvalue().splitlines()) == 20
    assert len(redirected.getvalue().splitlines()) == 20
    assert screen.readouterr().out.splitlines() == ["step 0"]


def test_a_line_of_the_same_function_that_comes_seldom_is_printed(context: Any, screen: Screen) -> None:
    form_of(context, 4)
    for step in range(12):
        context.count.rounds += 1
        if step % 5 == 0:
            print("epoch", step)
        print("step", step)
        if step % 5 == 3:
            for name in ("weight", "bias"):
                print(name, step)
    told = screen.readouterr().out.splitlines()
    assert [line for line in told if line.startswith("epoch")] == ["epoch 0", "epoch 5", "epoch 10"]
    seldom = [line for line in told if line.startswith(("weight", "bias"))]
    assert seldom == ["weight 3", "bias 3", "weight 8", "bias 8"]
    steps = [line for line in told if line.startswith("step")]
    assert steps == ["step 0", "step 4", "step 8"]


def test_what_a_library_prints_is_printed(context: Any, screen: Screen) -> None:
    form_of(context, 50)
    context.user_frame = lambda frame: None
    for step in range(20):
        context.count.rounds += 1
        print(step)
    assert len(screen.readouterr().out.splitlines()) == 20


def test_print_is_put_back(context: Any) -> None:
    before = print
    form_of(context, 4)
    assert print is not before
    context.hooks.undo()
    assert print is before


def test_switched_on_again_one_step_of_n_prints(context: Any, screen: Screen) -> None:
    form = form_of(context, 4)
    for step in range(12):
        if step == 5:
            form.off()
        if step == 6:
            form.on()
        context.count.rounds += 1
        print(step)
    assert screen.readouterr().out.split() == ["0", "4", "5", "6", "8"]
