"""``rarer-gc-collect`` in force: which collections are done, which left out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.remedy.test_live_forms import Context
from tests.running import run_observed

from hotloop.probe.counting import StepCount
from hotloop.remedy import catalogue
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


def test_garbage_is_held_to_what_a_collection_left(
    context: Any, full: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    form_of(context, 1000)
    garbage, most = [0], 0

    def freed(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] == 2:
            garbage[0] = 0

    monkeypatch.setattr(collecting, "resident_bytes", lambda: (1 << 30) + garbage[0])
    gc.callbacks.append(freed)
    try:
        for _ in range(60):
            context.count.rounds += 1
            garbage[0] += 20 << 20
            most = max(most, garbage[0])
            gc.collect()
    finally:
        gc.callbacks.remove(freed)
    assert most == 80 << 20
    assert len(full) == 15


def test_tensors_of_the_device_count(context: Any, full: list[int]) -> None:
    held = [0, 0]

    cuda = SimpleNamespace(is_initialized=lambda: True, memory_allocated=lambda: sum(held))
    context.torch = SimpleNamespace(cuda=cuda)
    form_of(context, 1000)
    for _ in range(12):
        context.count.rounds += 1
        held[1] += 20 << 20
        gc.collect()
    assert len(full) == 3


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


SCRIPT = """
import gc
import torch

if __name__ == "__main__":
    full = []
    gc.callbacks.append(lambda phase, info: full.extend([1] * (phase == "stop" and info["generation"] == 2)))
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(40):
        loss = model(torch.rand(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        gc.collect()
    print(len(full), repr(loss.item()))
"""


@pytest.mark.nightly
def test_an_unmodified_script_trains_bit_for_bit_as_before(tmp_path: Path) -> None:
    plain = run_observed(SCRIPT, folder=tmp_path / "plain", observed=False)
    env = catalogue.environment([catalogue.parse("rarer-gc-collect")])
    done = run_observed(SCRIPT, folder=tmp_path / "rarer", env=env)
    full, loss = done.stdout.split()
    assert plain.stdout.endswith(f" {loss}\n")
    assert int(full) < 10
    assert done.notes["remedy"][-1]["status"].startswith("in effect")
    assert not done.notes.get("disabled")
