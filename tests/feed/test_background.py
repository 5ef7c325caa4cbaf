"""Batches made in a thread: the same ones bit for bit, whoever draws beside it; errors where they belong."""

from __future__ import annotations

import gc
import os
import random
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from hotloop.feed import Background, background

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


def test_numpy_and_python_are_drawn_from_only_where_nobody_else_does() -> None:
    wanted = drawn(by_numpy, nothing)
    careful, promised = Background(by_numpy), Background(by_numpy, alone=True)
    assert same(drawn(careful, nothing), wanted)
    assert same(drawn(promised, nothing), wanted)
    assert careful.why_not == "it draws from Python's or numpy's generator, as others may"
    assert promised.why_not == ""
    promised.close()


@pytest.mark.parametrize("how", ["closed", "gone"])
@pytest.mark.parametrize("num", [1, 2, 7])
def test_what_was_drawn_for_nobody_is_given_back(num: int, how: str) -> None:
    drawn(by_numpy, nothing, num)
    wanted = np.random.rand(), random.random()
    ahead = Background(by_numpy, alone=True)
    drawn(ahead, nothing, num)
    if how == "closed":
        ahead.close()
    del ahead
    gc.collect()
    assert (np.random.rand(), random.random()) == wanted


def test_what_others_drew_since_is_not_drawn_again() -> None:
    ahead = Background(by_numpy, alone=True, depth=1)
    drawn(ahead, nothing, 5)
    thread = ahead._ahead
    assert thread is not None
    thread.first()  # nothing is under way
    num = random.random()
    ahead.close()
    assert random.random() != num


def test_draws_of_both_kinds_go_back_together() -> None:
    def both() -> torch.Tensor:
        return by_torch() + by_numpy()

    wanted = drawn(both, now_and_then)
    ahead = Background(both, alone=True)
    assert same(drawn(ahead, now_and_then), wanted)
    assert ahead.why_not == ""
    ahead.close()


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


def test_a_draw_that_comes_later_and_cannot_be_told() -> None:
    def maker() -> Callable[[], torch.Tensor]:
        count = iter(range(100))

        def make() -> torch.Tensor:
            value = torch.rand(3)
            return value + torch.rand_like(value) if torch.rand(1) > 0.8 and next(count) >= 0 else value

        return make

    ahead = Background(maker())
    assert same(drawn(ahead, nothing), drawn(maker(), nothing))
    assert ahead.why_not == "rand_like takes no generator"


def test_what_a_function_catches_is_told_all_the_same() -> None:
    def make() -> torch.Tensor:
        value = torch.rand(3)
        try:
            return value + torch.rand_like(value)
        except:  # noqa: E722
            return value

    ahead = Background(make)
    assert same(drawn(ahead, nothing), drawn(make, nothing))
    assert ahead.why_not == "rand_like takes no generator"


def test_every_operator_that_draws_is_known() -> None:
    """Those that have a tag for it, but what only others call."""
    known = background._DRAW | background._HIDE
    drawing = set()
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        name = name.partition(".")[0]
        packet = getattr(torch.ops.aten, name, None) if space == "aten" and name not in known else None
        for overload in packet.overloads() if packet is not None else ():
            if torch.Tag.nondeterministic_seeded in getattr(packet, overload).tags:
                drawing.add(name)
    public = {name for name in drawing if hasattr(torch, name) or hasattr(torch.Tensor, name)}
    inside = {
        "random",
        "_fill_mem_eff_dropout_mask_",
        "_fused_sdp_choice",
        "_cudnn_rnn",
        "_cudnn_init_dropout_state",
        "miopen_rnn",
        "_lstm_mps",
    }
    assert {name for name in public if "attention" not in name} <= inside | {
        "_nested_tensor_softmax_with_shape"
    }


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


def test_an_iterator_that_draws_from_torch_is_not_read_ahead() -> None:
    def shuffled() -> Iterator[torch.Tensor]:
        yield from (torch.randperm(5) for _ in range(20))

    ahead = Background(shuffled().__next__, again=False)
    assert same(drawn(ahead, always), drawn(shuffled().__next__, always))
    assert ahead.why_not == "what it draws from torch's generator could not be drawn anew"


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
    assert [one.name for one in threads] == ["hotloop-background"]
    del ahead
    gc.collect()
    assert not threads[0].is_alive()
    assert not any(one() for one in kept)


def test_a_forked_process_makes_its_own() -> None:
    ahead = Background(by_torch)
    wanted, _ = drawn(by_torch, nothing, 5)
    torch.manual_seed(0)
    for batch in wanted[:4]:
        assert torch.equal(ahead(), batch)
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(ahead(), wanted[4]) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ahead.close()


def test_what_holds_for_the_first_call_holds_in_the_thread() -> None:
    with torch.no_grad():
        ahead = Background(torch.is_grad_enabled)
        assert [ahead() for _ in range(5)] == [False] * 5
    ahead.close()
    with torch.autocast("cpu"):
        ahead = Background(lambda: 1)
        ahead()
    assert ahead.why_not == "it is called under autocast"


def test_a_depth_of_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Background(by_torch, depth=0)
