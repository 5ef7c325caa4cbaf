"""``rarer-gc-collect`` in force: which collections are done, which left out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from tests.remedy.test_live_forms import Context

from hotloop.probe.counting import StepCount
from hotloop.remedy.live import collecting
from hotloop.remedy.live.collecting import RarerCollections


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    found: Any = Context()
    found.count = StepCount()
    found.user_frame = lambda frame: frame
    yield found
    found.hooks.undo()
    assert not found.errors


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Full collections that were done."""
    done: list[int] = []

    def collected(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            done.append(1)

    gc.disable()
    gc.callbacks.append(collected)
    monkeypatch.setattr(collecting, "resident_bytes", lambda: 1 << 30)
    yield done
    gc.callbacks.remove(collected)
    gc.enable()


def form_of(context: Any, every: int) -> RarerCollections:
    form = RarerCollections(context, every)
    form.install()
    return form


def test_one_of_n_calls_collects_once_training_runs(context: Any, full: list[int]) -> None:
    form = form_of(context, 4)
    for _ in range(3):
        gc.collect()
    assert len(full) == 3
    for _ in range(9):
        context.count.rounds += 1
        gc.collect()
    assert len(full) == 3 + 3
    assert form.status() == "in effect: 3 of 9 calls collected"


def test_calls_that_come_with_every_epoch_are_left_alone(context: Any, full: list[int]) -> None:
    form = form_of(context, 4)
    for _ in range(5):
        context.count.rounds += 4
        gc.collect()
    assert len(full) == 5
    assert form.status().startswith("nothing in this run")


def test_memory_that_grows_is_looked_through_at_once(
    context: Any, full: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    form_of(context, 1000)
    held = [1 << 30]
    monkeypatch.setattr(collecting, "resident_bytes", lambda: held[0])
    for _ in range(12):
        context.count.rounds += 1
        held[0] += 20 << 20
        gc.collect()
    assert len(full) == 3  # the first, and each time it grew by 80 MiB


def test_an_answer_that_is_read_and_young_objects_are_the_scripts(context: Any, full: list[int]) -> None:
    form_of(context, 1000)
    told = []
    for _ in range(5):
        context.count.rounds += 1
        told.append(gc.collect())
        gc.collect(0)
    assert len(full) == 5


def test_what_a_library_calls_for_is_done(context: Any, full: list[int]) -> None:
    form_of(context, 1000)
    context.user_frame = lambda frame: None
    for _ in range(5):
        context.count.rounds += 1
        gc.collect()
    assert len(full) == 5


def test_the_collector_is_put_back(context: Any) -> None:
    before = gc.collect
    form_of(context, 4)
    assert gc.collect is not before
    context.hooks.undo()
    assert gc.collect is before
