"""The live form of gradient accumulation on the real torch: what a loop written for it computes."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hotloop.hooks.registry import Hooks
from hotloop.remedy.live.accumulating import Accumulate

GROUP, UPDATES = 4, 3


@pytest.fixture
def form() -> Iterator[Accumulate]:
    errors: list[BaseException] = []
    hooks = Hooks(lambda name, error: errors.append(error))
    hooks.owner = get_ident()
    probe: Any = SimpleNamespace(
        torch=torch, hooks=hooks, note=lambda *_, **__: None, count=SimpleNamespace(fed=True)
    )
    form = Accumulate(probe, GROUP)
    form.id = "accumulation"
    form.install()
    yield form
    hooks.undo()
    assert not errors


def batches() -> list[torch.Tensor]:
    """One of the first update, which is left alone, then those of whole groups."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 8, generator=generator) for _ in range(1 + GROUP * UPDATES)]


class Loop:
    """A script's loop: ``every`` is how many batches it makes of an update after the first, by itself."""

    def __init__(self, every: int, *, scaler: bool = False, clip: bool = False, after: bool = False) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaler, init_scale=64.0)
        self.every, self.clip, self.after = every, clip, after

    def train(self) -> list[torch.Tensor]:
        for number, batch in enumerate(batches()):
            per_update = self.every if number else 1
            begins, ends = (number - 1) % per_update == 0, number % per_update == 0
            if begins and not self.after:
                self.optimizer.zero_grad()
            loss = self.model(batch).square().mean() / per_update
            self.scaler.scale(loss).backward()
            if ends:
                self.update()
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def update(self) -> None:
        if self.clip:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.01).item()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.after:
            self.optimizer.zero_grad()


@pytest.mark.parametrize("how", [{}, {"after": True}, {"clip": True}, {"scaler": True, "clip": True}])
def test_a_plain_loop_computes_what_one_that_accumulates_does(form: Accumulate, how: dict[str, bool]) -> None:
    form.off()
    wanted = Loop(GROUP, **how).train()
    form.on()
    assert all(torch.equal(*pair) for pair in zip(Loop(1, **how).train(), wanted, strict=True))
    assert form.status() == "in effect"


def test_off_it_is_the_scripts_own_loop_again(form: Accumulate) -> None:
    form.off()
    wanted = Loop(1).train()
    loop = Loop(1)
    model, first = loop.model, batches()[0]
    state = [parameter.detach().clone() for parameter in model.parameters()]
    form.on()
    for _ in range(3):  # the first is an update, the others begin a group
        loop.optimizer.zero_grad()
        model(first).square().mean().backward()
        loop.optimizer.step()
    form.off()
    assert all(parameter.grad is None for parameter in model.parameters())
    with torch.no_grad():
        for parameter, before in zip(model.parameters(), state, strict=True):
            parameter.copy_(before)
    loop.optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    assert all(torch.equal(*pair) for pair in zip(loop.train(), wanted, strict=True))


def test_without_a_scaler_every_step_is_still_one_of_the_optimizer(form: Accumulate) -> None:
    """What counts updates, a learning rate schedule for one, counts the script's."""

    loop, steps = Loop(1), 0

    def count(*_: Any) -> None:
        nonlocal steps
        steps += 1

    loop.optimizer.register_step_post_hook(count)
    loop.train()
    assert steps == len(batches())
    assert next(iter(loop.optimizer.state.values()))["step"] == 1 + UPDATES


@pytest.mark.parametrize("scaler", [True, False])
def test_after_gradients_without_a_step_a_group_begins(form: Accumulate, scaler: bool) -> None:
    """Kept, what overflowed would be in all sums that follow."""
    loop = Loop(1, scaler=scaler)
    for number in range(1 + 3 * GROUP):
        loop.optimizer.zero_grad()
        loss = loop.model(batches()[0]).square().mean()
        loop.scaler.scale(loss * (float("inf") if number == GROUP else 1.0)).backward()
        norm = nn.utils.clip_grad_norm_(loop.model.parameters(), 100.0)
        if scaler or norm.isfinite():
            loop.scaler.step(loop.optimizer)
        loop.scaler.update()
    assert loop.scaler.get_scale() == (32.0 if scaler else 1.0)
    assert next(iter(loop.optimizer.state.values()))["step"] == 3


def test_clearing_a_part_before_the_step_begins_no_group(form: Accumulate) -> None:
    loop = Loop(1)
    for batch in batches():
        loop.optimizer.zero_grad()
        loop.model(batch).square().mean().backward()
        loop.model[0].zero_grad()
        loop.optimizer.step()
    assert loop.optimizer.state[loop.model[2].weight]["step"] == 1 + UPDATES


def test_a_step_within_a_step_is_one(form: Accumulate) -> None:
    class Inner(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    loop = Loop(1)
    loop.optimizer = Inner(loop.model.parameters(), lr=0.05)
    loop.train()
    assert form.status() == "in effect"
    assert next(iter(loop.optimizer.state.values()))["step"] == 1 + UPDATES


def other_optimizer(loop: Loop) -> None:
    other = torch.optim.SGD(loop.model.parameters(), lr=0.1)
    for batch in batches():
        loop.model(batch).sum().backward()
        loop.optimizer.step()
        other.step()


def closure(loop: Loop) -> None:
    def compute() -> float:
        loop.optimizer.zero_grad()
        loss = loop.model(batches()[0]).square().mean()
        loss.backward()
        return loss.item()

    for _ in range(6):
        loop.optimizer.step(compute)


def cleared_by_hand(loop: Loop) -> None:
    for batch in batches():
        for parameter in loop.model.parameters():
            parameter.grad = None
        loop.model(batch).square().mean().backward()
        loop.optimizer.step()


@pytest.mark.parametrize(
    ("train", "why"),
    [(other_optimizer, "several optimizers"), (closure, "closure"), (cleared_by_hand, "other means")],
)
def test_what_it_cannot_do_right_is_left_alone_and_told(
    form: Accumulate, train: Callable[[Loop], None], why: str
) -> None:
    train(Loop(1))
    assert why in form.status()
    assert not form.adds()


def test_a_scaler_in_a_loop_without_loader_is_left_alone(form: Accumulate) -> None:
    form.probe.count.fed = False
    Loop(1, scaler=True).train()
    assert "no DataLoader" in form.status()
