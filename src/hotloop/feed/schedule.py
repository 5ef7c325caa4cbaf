"""The learning rate for another batch size: scaled by rule, reached through a warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.optim.lr_scheduler import LRScheduler

#: How the learning rate grows with the batch, by name, as a function of ``batch_size / base_batch_size``.
RULES: Final[dict[str, Callable[[float], float]]] = {
    # Goyal et al. 2017, arXiv:1706.02677, section 2.1: SGD with momentum.
    "linear": lambda ratio: ratio,
    # Krizhevsky 2014, arXiv:1404.5997; for Adam Malladi et al. 2022, arXiv:2205.10287.
    "sqrt": math.sqrt,
}

#: Where the factor that a parameter group's learning rate already contains is kept; saved with the optimizer.
_FACTOR: Final = "batch_size_factor"


class ScaledLR(LRScheduler):  # type: ignore[misc]
    """Scales an optimizer's learning rates to a batch size, and warms up to them over ``warmup_steps`` steps.

    The learning rates the optimizer was made with are those found right for ``base_batch_size``. They (and
    ``initial_lr``, which other schedulers start from) are multiplied once, in every parameter group, by
    ``batch_size / base_batch_size`` or its square root. From step 0 the rate then rises in equal increments
    from ``start_factor`` of that to all of it at step ``warmup_steps``.

    Make it before other schedulers of the same optimizer, and call ``step()`` once per optimizer step. It
    multiplies what it finds, so any torch scheduler of that kind (``StepLR``, ``CosineAnnealingLR``,
    ``ExponentialLR``...) can run at the same time, by itself or in a ``ChainedScheduler``; in a
    ``SequentialLR`` it is the first.

    Args:
        optimizer: any torch optimizer.
        batch_size: samples per optimizer step, over all ranks and accumulated micro-batches.
        base_batch_size: the same for which the optimizer's learning rates were chosen.
        rule: ``"linear"`` (SGD) or ``"sqrt"`` (Adam and its kin).
        warmup_steps: 0 for none.
        start_factor: default ``base_batch_size / batch_size`` under the rule: the warm-up begins at the
            unscaled rate (Goyal et al. 2017, section 2.2), or at 1 where the batch became smaller.
        last_epoch: as in torch's schedulers.

    Raises:
        ValueError: an unknown rule, a size that is not positive, a start factor outside (0, 1].
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        batch_size: int,
        base_batch_size: int,
        rule: str = "linear",
        warmup_steps: int = 0,
        start_factor: float | None = None,
        last_epoch: int = -1,
    ) -> None:
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(map(repr, RULES))}, got {rule!r}")
        if batch_size <= 0 or base_batch_size <= 0 or warmup_steps < 0:
            raise ValueError(
                f"batch sizes must be positive and warmup_steps not negative, got {batch_size=}, "
                f"{base_batch_size=}, {warmup_steps=}"
            )
        self.factor = RULES[rule](batch_size / base_batch_size)
        self.warmup_steps = warmup_steps
        self.start_factor = min(1.0, 1 / self.factor) if start_factor is None else start_factor
        if not 0 < self.start_factor <= 1:
            raise ValueError(f"start_factor must be above 0 and at most 1, got {start_factor}")
        for group in optimizer.param_groups:
            self._scale(group)
        super().__init__(optimizer, last_epoch)

    def _scale(self, group: dict[str, Any]) -> None:
        """Multiply a group's rates; a factor they contain already (a loaded optimizer) is replaced."""
        change = self.factor / group.get(_FACTOR, 1.0)
        group[_FACTOR] = self.factor
        for name in ("lr", "initial_lr"):
            if isinstance(group.get(name), torch.Tensor):
                group[name].mul_(change)
            elif name in group:
                group[name] = group[name] * change

    def _ramp(self, step: int) -> float:
        """The share of the scaled rate at a step."""
        if step >= self.warmup_steps:
            return 1.0
        return self.start_factor + (1 - self.start_factor) * step / self.warmup_steps

    def get_lr(self) -> list[Any]:
        """The rates of the step that begins, as a multiple of the present ones."""
        before = self._ramp(self.last_epoch - 1) if self.last_epoch > 0 else 1.0
        change = self._ramp(self.last_epoch) / before
        return [group["lr"] * change for group in self.optimizer.param_groups]

    def _get_closed_form_lr(self) -> list[Any]:
        return [base * self._ramp(self.last_epoch) for base in self.base_lrs]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken.

        Raises:
            ValueError: it was taken with another batch size, rule or warm-up: the rates saved with the
                optimizer contain another factor.
        """
        for name in ("factor", "warmup_steps", "start_factor"):
            if state_dict[name] != getattr(self, name):
                raise ValueError(
                    f"the saved schedule has {name}={state_dict[name]}, this one {getattr(self, name)}; "
                    "make it with the sizes it was saved with, or make a new one after loading the optimizer"
                )
        super().load_state_dict(state_dict)
