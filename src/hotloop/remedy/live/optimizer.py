"""Live forms of the update: fused or multi-tensor kernels."""

from __future__ import annotations

import sys
from typing import Any

from hotloop.remedy.live.form import Form
from hotloop.state.identity import Known

_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
#: Multi-tensor kernels that do not give what the loop over parameters gives, bit for bit.
ROUND_OTHERWISE = frozenset(["NAdam", "RAdam", "ASGD", "Adafactor"])
_SPARSE = "gradients are sparse: no fused kernel takes them"


class _Groups(Form):
    """Sets an entry of every parameter group, when the optimizer steps for the first time."""

    switchable = True
    entries: dict[str, Any]

    def install(self) -> None:
        """Before each step: torch's global hook."""
        self._optimizers: Known[list[dict[str, Any]]] = Known()  # what each group had; empty: refused
        register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
        self.probe.hooks.at_undo(register(self.guard(self._before_step)).remove)

    def refusal(self, optimizer: Any) -> str:
        """Why it does not go for this optimizer; "" where it does."""
        raise NotImplementedError

    def changed(self, optimizer: Any, on: bool) -> None:
        """The entries of an optimizer with state were set or put back."""

    def check(self, optimizer: Any) -> None:
        """Before each further step of an optimizer that was changed."""

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if not self.active or self.torch.compiler.is_compiling():
            return
        before = self._optimizers.get(optimizer)
        if before is not None:
            if before:
                self.check(optimizer)
            return
        refused = self.refusal(optimizer)
        groups = optimizer.param_groups
        before = [] if refused else [{name: group.get(name) for name in self.entries} for group in groups]
        self._optimizers.put(optimizer, before)
        if refused:
            self.refused(refused)
            return
        for group in groups:
            group.update(self.entries)
        self.changed(optimizer, True)
        self.took()

    def put_back(self, optimizer: Any, before: list[dict[str, Any]]) -> None:
        """What the script had, for one optimizer."""
        for group, entries in zip(optimizer.param_groups, before, strict=False):
            group.update(entries)
        if before:
            self.changed(optimizer, False)

    def refuse(self, optimizer: Any, why: str) -> None:
        """Put an optimizer back for good."""
        self.put_back(optimizer, self._optimizers.get(optimizer) or [])
        self._optimizers.put(optimizer, [])
        self.say(why)

    def off(self) -> None:
        """What the script had."""
        super().off()
        for optimizer, before in self._optimizers.values():
            self.put_back(optimizer, before)
        self._optimizers.clear()


class FusedOptimizer(_Groups):
    """One kernel for the whole update."""

    entries = {"fused": True, "foreach": False}  # noqa: RUF012

    def refusal(self, optimizer: Any) -> str:
        """Only torch's own optimizers with fused kernels, on devices that have them."""
        name = type(optimizer).__name__
        if name not in _FUSED or not type(optimizer).__module__.startswith("torch.optim"):
            return f"{name} has no fused kernel"
        first = optimizer.param_groups[0]
        if "fused" not in first:
            return f"{name} of this torch takes no fused"
        if first.get("fused"):
            return "the script asks for it already"
        if first.get("differentiable") or first.get("capturable"):
            return "a differentiable or capturable optimizer is left alone"
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if any(not parameter.is_floating_point() for parameter in parameters):
            return "not every parameter is a floating-point tensor"
        if name == "Adagrad" and any(parameter.device.type != "cpu" for parameter in parameters):
            return "Adagrad has a fused kernel on the CPU only"
        return _SPARSE if any(one.grad is not None and one.grad.is_sparse for one in parameters) else ""

    def check(self, optimizer: Any) -> None:
        """Gradients that came to be sparse, which fused kernels refuse; or to lie in another order."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                if gradient.is_sparse:
                    self.refuse(optimizer, _SPARSE)
                    return
                if not _fits(parameter, gradient):
                    _align(self.torch, optimizer)

    def changed(self, optimizer: Any, on: bool) -> None:
        """Fused kernels keep the number of steps on the device, and look at no strides."""
        if on:
            _align(self.torch, optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                step = (optimizer.state.get(parameter) or {}).get("step")
                if isinstance(step, self.torch.Tensor):
                    device = parameter.device if on else "cpu"
                    optimizer.state[parameter]["step"] = step.to(device=device, dtype=self.torch.float32)


class Foreach(_Groups):
    """One kernel per operation for many parameters."""

    entries = {"foreach": True}  # noqa: RUF012

    def refusal(self, optimizer: Any) -> str:
        """Only where torch's own optimizer knows it, and nothing faster is asked for."""
        first = optimizer.param_groups[0]
        if "foreach" not in first or not type(optimizer).__module__.startswith("torch.optim"):
            return f"{type(optimizer).__name__} takes no foreach"
        if type(optimizer).__name__ in ROUND_OTHERWISE:
            return f"{type(optimizer).__name__}: its multi-tensor kernels round differently"
        if first.get("fused") or first.get("foreach"):
            return "the script asks for it, or for fused, already"
        return "a differentiable optimizer is left alone" if first.get("differentiable") else ""


def _fits(parameter: Any, other: Any) -> bool:
    """Whether a tensor lies in memory as a parameter of its shape does; other shapes have no say.

    Fused kernels pair the memory of a weight, its gradient and its state element by element: on a CPU
    without a look at strides, on CUDA after refusing other ones.
    """
    if other.is_sparse or other.shape != parameter.shape or other.stride() == parameter.stride():
        return True
    pairs = zip(parameter.shape, parameter.stride(), other.stride(), strict=True)
    return all(mine == theirs for size, mine, theirs in pairs if size > 1)


def _align(torch: Any, optimizer: Any) -> None:
    """Lay gradients and state out as their parameters are; values stay."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            state = optimizer.state.get(parameter)
            values = list(state.values()) if isinstance(state, dict) else []
            for value in (gradient, *values):
                if isinstance(value, torch.Tensor) and not _fits(parameter, value):
                    data = value.data
                    value.data = data.new_empty_strided(data.shape, parameter.stride()).copy_(data)
