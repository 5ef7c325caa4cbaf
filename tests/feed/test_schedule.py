"""Learning rates scaled to a batch size: by rule, through a warm-up, with torch's own schedulers."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as torch_schedulers

from hotloop.feed.schedule import ScaledLR


def optimizer(*rates: float, as_tensor: bool = False) -> torch.optim.Optimizer:
    groups = [
        {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": torch.tensor(rate) if as_tensor else rate}
        for rate in rates
    ]
    return torch.optim.AdamW(groups, foreach=False) if as_tensor else torch.optim.SGD(groups, lr=1.0)


def rates(of: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in of.param_groups]


def walk(of: torch.optim.Optimizer, steps: int, *schedulers: Any) -> list[list[float]]:
    found = [rates(of)]
    for _ in range(steps):
        of.step()
        for scheduler in schedulers:
            scheduler.step()
        found.append(rates(of))
    return found


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize(("rule", "factor"), [("linear", 4.0), ("sqrt", 2.0)])
def test_every_group_is_scaled_by_the_rule(rule: str, factor: float, as_tensor: bool) -> None:
    of = optimizer(0.5, 0.01, as_tensor=as_tensor)
    scheduler = ScaledLR(of, batch_size=1024, base_batch_size=256, rule=rule)
    assert rates(of) == pytest.approx([0.5 * factor, 0.01 * factor])
    assert walk(of, 3, scheduler)[-1] == pytest.approx([0.5 * factor, 0.01 * factor])


def test_the_warm_up_rises_from_the_unscaled_rate_in_equal_steps() -> None:
    of = optimizer(0.1)
    scheduler = ScaledLR(of, batch_size=1280, base_batch_size=256, warmup_steps=4)
    walked = [rate for (rate,) in walk(of, 6, scheduler)]
    assert walked == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5])
    assert scheduler.get_last_lr() == pytest.approx([0.5])


OTHERS: list[Callable[[torch.optim.Optimizer], Any]] = [
    lambda of: torch_schedulers.StepLR(of, 3, 0.1),
    lambda of: torch_schedulers.ExponentialLR(of, 0.9),
    lambda of: torch_schedulers.CosineAnnealingLR(of, 20),
    lambda of: torch_schedulers.PolynomialLR(of, 20, 0.9),
    lambda of: torch_schedulers.MultiplicativeLR(of, lambda step: 0.95),
]


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("chained", [False, True])
def test_beside_another_scheduler_the_rate_is_the_product(
    make: Callable[[torch.optim.Optimizer], Any], chained: bool
) -> None:
    alone = optimizer(0.1, 0.02)
    theirs = walk(alone, 15, make(alone))
    of = optimizer(0.1, 0.02)
    ours = ScaledLR(of, batch_size=64, base_batch_size=32, warmup_steps=5)
    other = make(of)
    both = [torch_schedulers.ChainedScheduler([ours, other], of)] if chained else [ours, other]
    ramp = [min(2.0, 1 + step / 5) for step in range(16)]
    wanted = [[rate * share for rate in row] for row, share in zip(theirs, ramp, strict=True)]
    for got, row in zip(walk(of, 15, *both), wanted, strict=True):
        assert got == pytest.approx(row)


@pytest.mark.parametrize("at", [0, 2, 5, 9])
def test_saved_and_loaded_it_goes_on(at: int) -> None:
    def make() -> tuple[torch.optim.Optimizer, Any, Any]:
        of = optimizer(0.1, 0.3)
        ours = ScaledLR(of, batch_size=512, base_batch_size=64, rule="sqrt", warmup_steps=6)
        return of, ours, torch_schedulers.StepLR(of, 4)

    of, *schedulers = make()
    walk(of, at, *schedulers)
    file = io.BytesIO()
    torch.save([each.state_dict() for each in (of, *schedulers)], file)
    wanted = walk(of, 8, *schedulers)

    file.seek(0)
    again, *others = make()
    for each, state in zip((again, *others), torch.load(file), strict=True):
        each.load_state_dict(state)
    got = walk(again, 8, *others)
    assert got == wanted


def test_a_loaded_optimizer_is_not_scaled_twice() -> None:
    of = optimizer(0.1)
    ScaledLR(of, batch_size=64, base_batch_size=32)
    loaded = optimizer(0.1)
    loaded.load_state_dict(copy.deepcopy(of.state_dict()))
    ScaledLR(loaded, batch_size=64, base_batch_size=32)
    assert rates(loaded) == pytest.approx([0.2])
    ScaledLR(loaded, batch_size=128, base_batch_size=32)
    assert rates(loaded) == pytest.approx([0.4]), "another batch size"
    assert loaded.param_groups[0]["initial_lr"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rule": "cubic"}, "'linear', 'sqrt', got 'cubic'"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"base_batch_size": -1}, "base_batch_size=-1"),
        ({"warmup_steps": -1}, "warmup_steps=-1"),
        ({"start_factor": 0.0}, "start_factor"),
        ({"start_factor": 1.5}, "start_factor"),
    ],
)
def test_wrong_arguments_change_nothing(wrong: dict[str, Any], words: str) -> None:
    of = optimizer(0.1)
    with pytest.raises(ValueError, match=words):
        ScaledLR(of, **{"batch_size": 64, "base_batch_size": 32, **wrong})
    assert rates(of) == [0.1]
