"""The live form of float16 on the real torch: what a loop written with torch.amp.GradScaler computes."""

from __future__ import annotations

from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hotloop.compare.verdict import _applied
from hotloop.hooks.registry import Hooks
from hotloop.remedy.live import scaling
from hotloop.remedy.live.autocast import AutocastBf16
from hotloop.remedy.live.scaling import AutocastFp16

PLAIN, UPDATES = 2, 8


@contextmanager
def in_force() -> Iterator[AutocastFp16]:
    errors: list[BaseException] = []
    hooks = Hooks(lambda name, error: errors.append(error))
    hooks.owner = get_ident()
    probe: Any = SimpleNamespace(torch=torch, hooks=hooks, note=lambda *_, **__: None, inside=[0])
    form = AutocastFp16(probe, None)
    form.id = "autocast-fp16"
    form.install()
    try:
        yield form
    finally:
        hooks.undo()
    assert not errors


@pytest.fixture
def form() -> Iterator[AutocastFp16]:
    with in_force() as form:
        yield form


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.halved: list[bool] = []
        self.reentrant: bool | None = None  # whose checkpoint recomputes it, if any does

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.halved.append(torch.is_autocast_enabled("cpu"))
        if self.reentrant is None:
            result: torch.Tensor = self.layers(batch)
        else:
            result = checkpoint(self.layers[1:], self.layers[0](batch), use_reentrant=self.reentrant)
        return result


class Loop:
    """A script's loop. ``by_hand``: with autocast and a scaler from its third update on."""

    def __init__(
        self, *, by_hand: bool = False, every: int = 1, clip: bool = False, zeros: bool = False
    ) -> None:
        torch.manual_seed(0)
        self.model = Model()
        self.optimizer: Any = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.none = torch.amp.GradScaler("cpu", enabled=False)
        self.scaler = torch.amp.GradScaler("cpu", growth_interval=3) if by_hand else self.none
        self.every, self.clip, self.zeros = every, clip, zeros
        self.losses: list[float] = []
        self.gradients: list[float] = []
        self.steep: set[int] = set()  # updates whose gradients overflow
        self.step: Callable[[int], None] = self.update
        self.batches = torch.randn(UPDATES * every, 4, 8, generator=torch.Generator().manual_seed(1))

    def train(self) -> list[torch.Tensor]:
        for number in range(UPDATES):
            self.step(number)
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    def update(self, update: int) -> None:
        scaler = self.scaler if update >= PLAIN else self.none
        self.optimizer.zero_grad(set_to_none=not self.zeros)
        for number in range(update * self.every, (update + 1) * self.every):
            loss = self.loss(number, halved=scaler.is_enabled())
            self.losses.append(loss.item())
            scaler.scale(loss * (1e30 if update in self.steep else 1.0)).backward()
        scaler.unscale_(self.optimizer)
        self.gradients += [one.grad.norm().item() for one in self.model.parameters()]
        if self.clip:
            nn.utils.clip_grad_value_(self.model.parameters(), 0.1)
        scaler.step(self.optimizer)
        scaler.update()

    def loss(self, number: int, *, halved: bool = False) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.float16, enabled=halved):
            output = self.model(self.batches[number])
        return output.float().square().mean() / self.every


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("how", [{}, {"clip": True}, {"every": 3}, {"every": 2, "clip": True, "zeros": True}])
@pytest.mark.parametrize("steep", [set(), {3, 4}])
def test_a_plain_loop_computes_what_one_with_a_scaler_does(
    how: dict[str, Any], steep: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "_INTERVAL", 3)
    wanted, loop = Loop(by_hand=True, **how), Loop(**how)
    wanted.steep = loop.steep = steep
    after = wanted.train()
    with in_force() as form:
        assert same(loop.train(), after)
        status = form.status()
    assert loop.losses == wanted.losses, "the script sees its own loss"
    assert str(loop.gradients) == str(wanted.gradients), "and its own gradients"
    assert loop.model.halved == wanted.model.halved
    assert form._scale == wanted.scaler.get_scale() == 2.0 ** (16 + (2 if not steep else 1 - 2))
    told = f"in effect: {len(steep)} of {UPDATES - PLAIN} updates were skipped" if steep else "in effect"
    assert status.startswith(told)
    notes: Any = SimpleNamespace(applied=[{"id": "autocast-fp16", "status": status}])
    assert [item.status for item in _applied(notes)] == ["passed"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_activations_that_are_computed_again(reentrant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "_INTERVAL", 3)
    wanted, loop = Loop(by_hand=True), Loop()
    wanted.model.reentrant = loop.model.reentrant = reentrant
    after = wanted.train()
    with in_force() as form:
        assert same(loop.train(), after)
        assert form.status() == "in effect"


def test_evaluation_and_what_is_switched_off_are_the_scripts_own() -> None:
    wanted, loop = Loop().train(), Loop()
    with in_force() as form:
        start = [parameter.detach().clone() for parameter in loop.model.parameters()]
        loop.train()
        assert loop.model.halved == [False] * PLAIN + [True] * (UPDATES - PLAIN)
        with torch.no_grad():
            loop.model(loop.batches[0])
            for parameter, before in zip(loop.model.parameters(), start, strict=True):
                parameter.copy_(before)
        assert not loop.model.halved[-1]
        form.off()
        loop.optimizer.state.clear()
        assert same(loop.train(), wanted)
        assert not any(loop.model.halved[-UPDATES:])


def test_a_second_step_on_gradients_that_overflowed_is_skipped_too(form: AutocastFp16) -> None:
    loop = Loop()
    loop.train()
    before = [parameter.detach().clone() for parameter in loop.model.parameters()]
    loop.optimizer.zero_grad()
    (loop.loss(0) * 1e30).backward()
    loop.optimizer.step()
    loop.optimizer.step()
    assert not loop.model.layers[0].weight.grad.isfinite().all(), "as GradScaler leaves them"
    assert same(list(loop.model.parameters()), before)
    assert form._scale == 2.0**15
    loop.optimizer.zero_grad()
    loop.loss(0).backward()
    loop.optimizer.step()
    assert not same(list(loop.model.parameters()), before)


def test_where_nothing_helps_it_ends(form: AutocastFp16) -> None:
    loop = Loop()
    loop.steep = set(range(PLAIN, UPDATES))
    for _ in range(4):
        loop.train()
    assert form.status() == "gradients overflow at any scale: float16 is too narrow here"
    assert form._skipped == 17
    loop.steep = set()
    assert all(bool(parameter.isfinite().all()) for parameter in loop.train())
    assert not loop.model.halved[-1]


def own_scaler(loop: Loop) -> None:
    plain = loop.loss
    loop.scaler = loop.none = torch.amp.GradScaler("cpu", init_scale=4.0)
    loop.loss = lambda number, *, halved=False: plain(number)  # type: ignore[method-assign]


def own_autocast(loop: Loop) -> None:
    plain = loop.model.layers.forward

    def forward(batch: torch.Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return plain(batch)

    loop.model.layers.forward = forward  # type: ignore[method-assign]


def closure(loop: Loop) -> None:
    def step(number: int) -> None:
        def compute() -> torch.Tensor:
            loop.optimizer.zero_grad()
            loss = loop.loss(number)
            loss.backward()
            return loss

        loop.optimizer.step(compute)

    loop.step = step


def two_optimizers(loop: Loop) -> None:
    other, plain = torch.optim.SGD(loop.model.parameters(), lr=0.01), loop.update

    def step(number: int) -> None:
        plain(number)
        other.step()

    loop.step = step


def another_optimizer(loop: Loop) -> None:
    class Own(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    loop.optimizer = Own(loop.model.parameters(), lr=0.05)


def penalty(loop: Loop) -> None:
    plain = loop.loss

    def loss(number: int, *, halved: bool = False) -> torch.Tensor:
        value = plain(number)
        (slope,) = torch.autograd.grad(value, loop.model.layers[0].weight, create_graph=True)
        return value + slope.square().sum()

    loop.loss = loss  # type: ignore[method-assign]


def hooked(loop: Loop) -> None:
    loop.model.layers[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))


def called_directly(loop: Loop) -> None:
    def step(number: int) -> None:
        loop.optimizer.zero_grad()
        torch.autograd.backward(loop.loss(number))
        loop.optimizer.step()

    loop.step = step


def input_with_gradient(loop: Loop) -> None:
    loop.batches = [one.requires_grad_() for one in loop.batches.clone().unbind()]  # type: ignore[assignment]


def doubles(loop: Loop) -> None:
    loop.model.double()
    loop.batches = loop.batches.double()


CASES = {
    "gradient scaler": own_scaler,
    "uses autocast already": own_autocast,
    "closure": closure,
    "several optimizers": two_optimizers,
    "steps in its own way": another_optimizer,
    "autograd.grad": penalty,
    "hook": hooked,
    "autograd.backward itself": called_directly,
    "input of the model": input_with_gradient,
    "float64": doubles,
}


@pytest.mark.parametrize("why", CASES)
def test_what_it_cannot_do_right_is_left_alone_and_told(why: str) -> None:
    wanted, loop = Loop(), Loop()
    CASES[why](wanted)
    after = wanted.train()
    with in_force() as form:
        CASES[why](loop)
        assert same(loop.train(), after)
        assert why in form.status()
    assert loop.model.halved == wanted.model.halved
    assert not form.count


def late_hook(loop: Loop) -> None:
    loop.model.layers[2].weight.register_hook(lambda gradient: loop.gradients.append(gradient.norm().item()))


def late_graph(loop: Loop) -> None:
    loop.loss(0).backward(create_graph=True)


def late_inputs(loop: Loop) -> None:
    loop.loss(0).backward(inputs=list(loop.model.parameters()))


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph")
@pytest.mark.parametrize("late", [late_hook, late_graph, late_inputs])
def test_what_comes_later_ends_it_with_gradients_as_they_are(
    form: AutocastFp16, late: Callable[[Loop], None]
) -> None:
    loop, plain = Loop(), Loop()
    loop.train()
    assert form.status() == "in effect"
    loop.optimizer.zero_grad()
    late(loop)
    loop.loss(0).backward()
    form.off()
    plain.model.load_state_dict(loop.model.state_dict())
    for _ in range(1 if late is late_hook else 2):
        plain.loss(0).backward()
    for one, other in zip(loop.model.parameters(), plain.model.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(one.grad, other.grad, rtol=0.02, atol=1e-3)
    assert form.status() != "in effect"
    form.on()
    loop.optimizer.step()
    loop.model(loop.batches[0])
    assert not loop.model.halved[-1]


def test_gradients_outside_the_model_end_it(form: AutocastFp16) -> None:
    loop, plain = Loop(), Loop()
    late, early = (torch.ones(1, requires_grad=True) for _ in range(2))
    for one, stray in ((loop, late), (plain, early)):
        if one is plain:
            form.off()
        own = one.loss
        one.loss = lambda number, *, halved=False, own=own, stray=stray: own(number) * stray.sum()  # type: ignore[method-assign]
        one.train()
    assert "neither the model nor the optimizer" in form.status()
    assert late.grad is not None and early.grad is not None
    torch.testing.assert_close(late.grad, early.grad, rtol=0.02, atol=1e-3)


def test_parameters_outside_the_optimizer_have_gradients_of_their_own_size(form: AutocastFp16) -> None:
    loop = Loop()
    loop.optimizer = torch.optim.SGD(loop.model.layers[2].parameters(), lr=0.0)
    seen: list[float] = []
    for _ in range(UPDATES):
        loop.model.zero_grad()
        loop.loss(0).backward()
        seen.append(loop.model.layers[0].weight.grad.norm().item())
        loop.optimizer.step()
    assert loop.model.halved[-1]
    assert seen == pytest.approx([seen[0]] * UPDATES, rel=0.02)


def test_bfloat16_in_its_turns_is_no_autocast_of_the_script(form: AutocastFp16) -> None:
    other = AutocastBf16(form.probe, None)
    other.id = "autocast-bf16"
    other.install()
    loop, types = Loop(), []
    loop.model.layers.register_forward_hook(lambda *args: types.append(args[-1].dtype))
    for active, passive in ((other, form), (form, other), (form, other)):
        passive.off()
        active.on()
        loop.train()
    half = [torch.float16] * UPDATES
    assert types == [torch.bfloat16] * UPDATES + half + half
    other.on()
    loop.train()
    assert form.status().startswith("in effect") and other.status() == "in effect"
