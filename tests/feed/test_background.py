"""Batches made in a thread: the same in every run, whoever draws beside it; errors where they belong."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hotloop.feed import Background

DATA = torch.arange(10_000)


def by_torch() -> torch.Tensor:
    at = torch.randint(len(DATA) - 8, (4,))
    noise = torch.empty(4).normal_() + torch.rand(4)
    return torch.stack([DATA[i : i + 8] for i in at.tolist()]) + noise[:, None]


def drawn(beside: Callable[[int], None], depth: int) -> list[Any]:
    """What a loop gets that draws as well."""
    torch.manual_seed(0)
    ahead = Background(by_torch, depth=depth)
    found = []
    for step in range(12):
        found.append(ahead())
        beside(step)
    ahead.close()
    return found


def test_batches_follow_the_seed_and_nothing_the_loop_draws() -> None:
    alone = drawn(lambda step: None, 2)
    assert len({tuple(batch.flatten().tolist()) for batch in alone}) == len(alone)
    for depth in (1, 3):
        dropping = drawn(lambda step: torch.nn.functional.dropout(torch.ones(8), 0.5), depth)
        assert all(map(torch.equal, alone, dropping))


def test_the_loop_draws_what_it_draws_with_another_depth() -> None:
    after = []
    for depth in (1, 4):
        drawn(lambda step: torch.rand(3), depth)
        after.append(torch.rand(3))
    assert torch.equal(*after)


def test_a_batch_is_made_while_the_step_computes() -> None:
    made = threading.Event()
    count = []

    def make() -> int:
        count.append(threading.current_thread())
        if len(count) > 2:
            made.set()
        return len(count)

    ahead = Background(make)
    assert ahead() == 1
    assert made.wait(60)
    assert [ahead(), ahead()] == [2, 3]
    assert threading.current_thread() not in count
    ahead.close()


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

    assert list(Background(batches(7).__next__)) == list(range(7))
    for number in Background(batches(50).__next__, depth=3):
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
