"""One optimizer step from several micro-batches, equal to the step of the big batch they make together.

With micro-batches of ``n_i`` samples and mean losses ``l_i`` the big batch's gradient is that of
``sum(n_i * l_i) / sum(n_i)``; dividing every loss by the number of micro-batches gives this only where all
are of one size and the group is full. Here each loss is weighted by its size, and the gradients are corrected
once, at the end of a group whose total turned out different, over all ranks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist


class Accumulation:
    """Gradient accumulation around any loop: exact weights, one synchronization and one step per group.

    ::

        accumulation = Accumulation(optimizer, steps=4, model=model)
        for images, labels in accumulation(loader):
            loss = criterion(model(images), labels)          # the mean over the samples
            if accumulation.backward(loss, len(images)):     # True: the optimizer has stepped
                scheduler.step()

    Args:
        optimizer: stepped, and its gradients cleared, at the end of each group.
        steps: micro-batches in a full group; the last group of a loader may be smaller.
        model: give it when it is wrapped in ``DistributedDataParallel`` (or ``FullyShardedDataParallel``, not
            tested here): its ``no_sync`` is entered for every micro-batch but the last of a group, and the
            number of samples is summed over its ranks (one number per group), so that ranks with fewer
            samples weigh less. Every rank must come to the same number of steps.
        scaler: a ``torch.amp.GradScaler``; gradients are unscaled before they are corrected and clipped.
        clip: called without arguments when the gradients of a group are complete, before the step:
            ``lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)``.

    ``num_optimizer_steps`` counts steps taken, not those that ``scaler`` skipped over infinite gradients (a
    fused optimizer skips by itself on the device, unseen). One batch is read ahead, so that the last group is
    known when it begins. After a ``break`` the group goes on with the next loader; clearing the gradients
    (``optimizer.zero_grad()``) begins it anew.

    Raises:
        ValueError: ``steps`` is below 1.
        TypeError: the model synchronizes in a way not supported here (``fully_shard``).
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        steps: int,
        model: torch.nn.Module | None = None,
        scaler: Any = None,
        clip: Callable[[], Any] | None = None,
    ) -> None:
        if steps < 1:
            raise ValueError(f"steps must be at least 1, got {steps}")
        if hasattr(model, "set_requires_gradient_sync"):
            raise TypeError(
                "Accumulation does not know fully_shard; wrap the model in DistributedDataParallel"
            )
        self.optimizer = optimizer
        self.steps = steps
        self.scaler = scaler
        self.clip = clip
        self.num_optimizer_steps = 0
        self._no_sync = getattr(model, "no_sync", None)
        group = getattr(model, "process_group", None) if self._no_sync is not None else None
        #: The ranks that a wrapped model averages its gradients over, where there are several.
        self._group = group if group is not None and dist.get_world_size(group) > 1 else None
        self._reference: float | None = None  # samples of a usual micro-batch, the same on all ranks
        self._num_micro_batches = 0
        self._num_samples = 0.0
        self._is_last: bool | None = None  # of the micro-batch in hand; None: none is in hand
        self._loader_state: Any = None

    def __call__(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The loader's batches, each inside its :meth:`micro_batch`; the loader's last ends its group."""
        source = iter(loader)
        has_state = hasattr(loader, "state_dict")
        try:
            ahead = next(source)
        except StopIteration:
            return
        is_last = False
        while not is_last:
            batch = ahead
            self._loader_state = loader.state_dict() if has_state else None  # type: ignore[attr-defined]
            try:
                ahead = next(source)
            except StopIteration:
                is_last, ahead = True, None
            with self.micro_batch(last=is_last):
                yield batch
            del batch
        self._loader_state = None
        if self._num_micro_batches:  # the last was skipped without a backward: its group ends without it
            if self._no_sync is not None:
                raise RuntimeError(
                    "the last micro-batch of the loader had no backward(), so the gradients of its group "
                    "were never synchronized between the ranks; give backward() a loss of zero instead of "
                    "skipping it"
                )
            self._step()

    @contextlib.contextmanager
    def micro_batch(self, *, last: bool = False) -> Iterator[None]:
        """Around the forward and backward pass of one micro-batch, for loops that do not iterate over this.

        ``last`` ends the group early: at the end of an epoch.
        """
        if self._num_micro_batches and all(parameter.grad is None for parameter in self._parameters()):
            self._num_micro_batches, self._num_samples = 0, 0.0  # somebody cleared them
        is_last = last or self._num_micro_batches + 1 >= self.steps
        context = contextlib.nullcontext() if is_last or self._no_sync is None else self._no_sync()
        with context:
            self._is_last = is_last
            try:
                yield
            finally:
                self._is_last = None

    def backward(self, loss: torch.Tensor, num_samples: float) -> bool:
        """Backward of a micro-batch's mean loss, and the optimizer's step when its group is complete.

        Args:
            loss: the mean over ``num_samples``, one number.
            num_samples: what the loss is a mean over: samples, or tokens that are not padding.

        Returns:
            Whether the group was complete. (A ``scaler`` may have skipped the step all the same.)

        Raises:
            RuntimeError: outside of a micro-batch, or twice in one.
            ValueError: ``num_samples`` is not positive.
        """
        if self._is_last is None:
            raise RuntimeError(
                "backward() needs a micro-batch of its own: iterate over accumulation(loader), or use "
                "«with accumulation.micro_batch():», and add several losses before calling it once"
            )
        if not num_samples > 0:
            raise ValueError(f"num_samples must be positive, got {num_samples}")
        is_last, self._is_last = self._is_last, None
        loss = loss * (num_samples / (self.steps * self._usual(num_samples)))
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        self._num_micro_batches += 1
        self._num_samples += num_samples
        if is_last:
            self._step()
        return is_last

    def _usual(self, num_samples: float) -> float:
        """Samples of the first micro-batch of all, rank 0's: keeps the losses near those of a mean."""
        if self._reference is None:
            if self._group is None:
                self._reference = float(num_samples)
            else:
                first = torch.tensor([num_samples], dtype=torch.float64, device=self._device())
                dist.broadcast(first, dist.get_global_rank(self._group, 0), group=self._group)
                self._reference = float(first.item())
        return self._reference

    def _step(self) -> None:
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        self._correct()
        if self.clip is not None:
            self.clip()
        if self.scaler is None:
            self.optimizer.step()
            self.num_optimizer_steps += 1
        else:
            self._step_scaled()
        self.optimizer.zero_grad(set_to_none=True)
        self._num_micro_batches, self._num_samples = 0, 0.0

    def _step_scaled(self) -> None:
        """The scaler calls the optimizer only where all gradients are finite; a hook tells whether it did."""
        taken: list[bool] = []
        hook = self.optimizer.register_step_post_hook(lambda *_: taken.append(True))
        try:
            self.scaler.step(self.optimizer)
        finally:
            hook.remove()
        self.scaler.update()
        self.num_optimizer_steps += bool(taken)

    def _correct(self) -> None:
        """From the weights assumed to those of the samples that came, on all ranks."""
        assumed = self.steps * self._usual(self._num_samples)
        factor: float | torch.Tensor = assumed / self._num_samples
        if self._group is not None:
            total = torch.tensor([self._num_samples], dtype=torch.float64, device=self._device())
            dist.all_reduce(total, group=self._group)
            # The wrapper made the mean over ranks; kept on the device, so that nobody waits for it.
            factor = (assumed * dist.get_world_size(self._group) / total).squeeze(0)
        elif factor == 1.0:
            return
        by_device: dict[torch.device, list[torch.Tensor]] = {}
        for parameter in self._parameters():
            if parameter.grad is not None and parameter.grad.layout is torch.strided:
                by_device.setdefault(parameter.grad.device, []).append(parameter.grad)
            elif parameter.grad is not None:
                parameter.grad.mul_(factor)
        for device, gradients in by_device.items():
            torch._foreach_mul_(gradients, factor if isinstance(factor, float) else factor.to(device))

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _device(self) -> torch.device:
        return next((parameter.device for parameter in self._parameters()), torch.device("cpu"))

    def state_dict(self) -> dict[str, Any]:
        """Everything that a group begun needs, its gradients included; every rank has its own.

        ``loader`` is the state of the loader iterated over as of the micro-batch in hand, where it keeps one
        (its own is a batch ahead); None outside of a loop. Gradients are not copied: save them before the
        next backward.
        """
        begun = self._num_micro_batches > 0
        return {
            "num_optimizer_steps": self.num_optimizer_steps,
            "num_micro_batches": self._num_micro_batches,
            "num_samples": self._num_samples,
            "reference": self._reference,
            "gradients": [parameter.grad for parameter in self._parameters()] if begun else None,
            "loader": self._loader_state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on in the middle of a group; give ``state_dict["loader"]`` to the loader yourself.

        Raises:
            ValueError: the optimizer has another number of parameters than the saved one.
        """
        gradients = state_dict["gradients"]
        parameters = self._parameters()
        if gradients is not None and len(gradients) != len(parameters):
            raise ValueError(
                f"{len(gradients)} gradients were saved, the optimizer has {len(parameters)} parameters"
            )
        self.num_optimizer_steps = state_dict["num_optimizer_steps"]
        self._num_micro_batches = state_dict["num_micro_batches"]
        self._num_samples = state_dict["num_samples"]
        self._reference = state_dict["reference"]
        for parameter, gradient in zip(parameters, gradients or [None] * len(parameters), strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device, copy=True)
