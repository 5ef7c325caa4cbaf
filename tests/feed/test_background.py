"""Batches made in a thread: the same ones bit for bit, whoever draws beside it; errors where they belong."""

from __future__ import annotations

import gc
import random
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.feed import Background

DATA = torch.arange(10_000)


def by_torch() -> torch.Tensor:
    at = torch.randint(len(DATA) - 8, (4,))
    noise = torch.empty(4).normal_() + torch.rand(4)
    return torch.stack([DATA[i : i + 8] for i in at.tolist()]) + noise[:, None]


def by_numpy() -> torch.Tensor:
    at = np.random.randint(0, len(DATA) - 8, 4)
    return torch.stack([DATA[i : i + 8] for i in at.tolist()]) + random.random()


def drawn(make: Callable[[], Any], beside: Callable[[int], None], num: int = 20) -> tuple[list[Any], Any]:
    """What a loop gets, and where the generators stand behind it."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    found = []
    for step in range(num):
        found.append(make())
        beside(step)
    return found, torch.get_rng_state()


def same(one: tuple[list[Any], Any], other: tuple[list[Any], Any]) -> bool:
    return torch.equal(one[1], other[1]) and all(map(torch.equal, one[0], other[0]))


def nothing(step: int) -> None:
    """Nobody draws."""


def now_and_then(step: int) -> None:
    """An evaluation, by the same function."""
    if step % 6 == 5:
        by_torch()
        torch.rand(3)


def always(step: int) -> None:
    """Dropout."""
    torch.nn.functional.dropout(torch.ones(8), 0.5)


@pytest.mark.parametrize("beside", [nothing, now_and_then, always])
@pytest.mark.parametrize("depth", [1, 3])
def test_batches_and_all_draws_are_those_without_a_thread(beside: Callable[[int], None], depth: int) -> None:
    ahead = Background(by_torch, depth=depth)
    assert same(drawn(ahead, beside), drawn(by_torch, beside))
    stopped = "others draw from torch's generator in every step" if beside is always else ""
    assert ahead.why_not == stopped
    ahead.close()


def test_a_batch_is_made_while_the_step_computes() -> None:
    made = threading.Event()
    count = []

    def make() -> int:
        count.append(threading.current_thread())
        if len(count) > 2:
            made.set()
        return len(count)

    ahead = Background(make)
    assert [ahead(), ahead()] == [1, 2]
    assert made.wait(60)
    assert ahead() == 3
    assert count[0] is count[1] is threading.current_thread() is not count[2]
    ahead.close()


def test_what_draws_from_numpy_or_python_is_made_as_it_is_asked_for() -> None:
    ahead = Background(by_numpy)
    assert same(drawn(ahead, nothing), drawn(by_numpy, nothing))
    assert ahead.why_not == "it draws from Python's or numpy's generator, as others may"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: torch.nn.functional.dropout(torch.ones(8)), "dropout takes no generator"),
        (lambda: torch.rand_like(torch.ones(3)), "rand_like takes no generator"),
        (
            lambda: torch.rand(2, generator=torch.default_generator),
            "it draws from torch's generator in a way that cannot be told",
        ),
    ],
)
def test_draws_that_cannot_be_told_are_made_as_they_are_asked_for(make: Callable[[], Any], why: str) -> None:
    ahead = Background(make)
    assert same(drawn(ahead, nothing), drawn(make, nothing))
    assert ahead.why_not == why


def test_an_exception_comes_where_its_batch_would_have() -> None:
    def maker() -> Callable[[], int]:
        numbers = iter(range(100))

        def make() -> int:
            number = next(numbers)
            if number == 5:
                raise KeyError("the fifth")
            return number

        return make

    ahead = Background(maker(), depth=4)
    assert [ahead() for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="the fifth") as error:
        ahead()
    assert "raise KeyError" in "".join(traceback.format_exception(error.value))
    assert ahead() == 6


def test_an_iterator_goes_to_its_end_and_is_closed() -> None:
    closed = []

    def batches(num: int) -> Iterator[int]:
        try:
            yield from range(num)
        finally:
            closed.append(num)

    assert list(Background(batches(7).__next__, again=False)) == list(range(7))
    for number in Background(batches(50).__next__, again=False, depth=3):
        if number == 10:
            break
    gc.collect()
    assert closed == [7, 50]


def test_the_thread_goes_with_its_last_reader() -> None:
    class Batch:
        pass

    kept: list[weakref.ref[Batch]] = []

    def make() -> Batch:
        batch = Batch()
        kept.append(weakref.ref(batch))
        return batch

    others = set(threading.enumerate())
    ahead = Background(make, depth=3)
    for _ in range(4):
        ahead()
    threads = [one for one in threading.enumerate() if one not in others]
    assert [one.name for one in threads] == ["hotloop-background_0"]
    del ahead
    gc.collect()
    assert not threads[0].is_alive()
    assert not any(one() for one in kept)
