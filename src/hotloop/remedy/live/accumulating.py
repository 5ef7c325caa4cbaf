"""The live form of gradient accumulation: of every N steps of the optimizer only the last is one.

For the others gradients are put aside while the optimizer steps over none, and are back when it is done;
``zero_grad`` clears them only where an update was made, and each loss counts for one in N.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.form import Form

_BACKWARD: Final = """
def {name}(self, gradient=None, *args, **kwargs):
    if not is_compiling() and gradient is None and form.adds():
        gradient = share(self)
    return original(self, gradient, *args, **kwargs)
"""

_ZERO: Final = """
def {name}(self, set_to_none=True):
    if not is_compiling() and form.keeps(self):
        return None
    return original(self, set_to_none=set_to_none)
"""

_CLIP: Final = """
def {name}(*args, **kwargs):
    if is_compiling() or not form.adds():
        return original(*args, **kwargs)
    if not form.puts_off():
        form.norms[original] = original(*args, **kwargs)
    return form.norms.get(original, without)
"""

_SCALER: Final = """
def {name}(self, *args, **kwargs):
    if not is_compiling() and self.is_enabled() and form.passes(what):
        return None
    return original(self, *args, **kwargs)
"""

_FORWARD: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or not form.puts_off():
        return original(self, *args, **kwargs)
    before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
    try:
        return original(self, *args, **kwargs)
    finally:
        self.require_backward_grad_sync = before
"""


class Accumulate(Form):
    """An update for every ``value`` of the script's."""

    switchable = True

    def install(self) -> None:
        """Around the optimizer and what scripts do between a backward and its step."""
        torch, hooks = self.torch, self.probe.hooks
        self._optimizers: Known[bool] = Known()
        self._aside: list[tuple[Any, Any]] = []
        self._refused = self._passed = False
        self._switch = hooks.switch(self.name)
        self.norms: dict[Any, Any] = {}  # of the last clipping, by function
        self._begin()
        self._wrap(torch.Tensor, "backward", _BACKWARD, share=self.guard(self._share))
        self._wrap(torch.optim.Optimizer, "zero_grad", _ZERO)
        self._wrap(torch.nn.Module, "zero_grad", _ZERO)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            self._wrap(module, "clip_grad_norm_", _CLIP, without=torch.zeros(()))
            self._wrap(module, "clip_grad_value_", _CLIP, without=None)
        for name in ("unscale_", "step", "update"):
            self._wrap(torch.amp.GradScaler, name, _SCALER, what=name)
        hooks.on_import("torch.nn.parallel.distributed", self._no_sync, self.name)
        module = sys.modules["torch.optim.optimizer"]
        hooks.at_undo(module.register_optimizer_step_pre_hook(self.guard(self._before)).remove)
        hooks.at_undo(module.register_optimizer_step_post_hook(self._after).remove)

    @property
    def group(self) -> int:
        """Steps that belong together: their mean is a step's time."""
        return int(self.value)

    def _wrap(self, owner: Any, name: str, source: str, **more: Any) -> None:
        self.probe.hooks.patch(
            owner, name, lambda original: compile_beside(original, source, form=self, **more)
        )

    def _no_sync(self, module: Any) -> None:
        self._wrap(module.DistributedDataParallel, "forward", _FORWARD)

    def _begin(self) -> None:
        self._number = 0  # steps of the group so far
        self._depth = 0  # of steps within steps: a subclass calls that of its parent
        self._cleared = True
        self._due = False  # gradients were made, and no step has come for them

    # -- what the wrappers ask -------------------------------------------------------------------------------

    def adds(self) -> bool:
        """Whether gradients are added up now; not before the first update, which shows what there is."""
        return self.active and not (self._refused or self._switch.off) and bool(self._optimizers.entries)

    def puts_off(self) -> bool:
        """Whether the coming step is not yet the last of its group."""
        return self.adds() and self._number + 1 < self.group

    def keeps(self, owner: Any) -> bool:
        """Whether gradients are to stay, asked where the script clears those of an optimizer or a module."""
        self._cleared, self._depth = True, 0  # a step that raised came to no end
        if self._due and self._has_all(owner):  # a step was left out, as by a scaler after an overflow
            self._number, self._due = 0, False
            self.norms.clear()
        return self.adds() and self._number > 0

    def _has_all(self, owner: Any) -> bool:
        own = owner.param_groups if hasattr(owner, "param_groups") else [{"params": owner.parameters()}]
        held = {id(one) for group in own for one in group["params"]}
        updated = [group for optimizer, _ in self._optimizers.values() for group in optimizer.param_groups]
        return all(id(one) in held for group in updated for one in group["params"])

    def passes(self, name: str) -> bool:
        """Whether a gradient scaler leaves out its ``unscale_``, its ``step`` and the ``update`` after it."""
        if name == "update":
            passed, self._passed = self._passed, False
            return passed
        if not self.puts_off():
            return False
        if not self.probe.count.fed:  # a step of such a loop is one of the optimizer, which is not seen then
            self._refuse("the loop has a gradient scaler and no DataLoader")
            return False
        if name == "step":
            self._passed = True
            self._count()
        return True

    def _share(self, loss: Any) -> Any:
        self._due = True
        return self.torch.full_like(loss, 1 / self.group) if loss.numel() == 1 else None

    # -- the optimizer ---------------------------------------------------------------------------------------

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth > 1:
            return
        if self._optimizers.get(optimizer) is None:
            self._optimizers.put(optimizer, True)
            if len(self._optimizers.entries) > 1:
                self._refuse("several optimizers: the gradients of one's loss reach the other's parameters")
            return
        if not self.adds():
            return
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            self._refuse("the step is given a closure, in which the gradients are made")
        elif not self._cleared:
            self._refuse("gradients are cleared by other means than zero_grad()")
        else:
            if self.puts_off():
                parameters = [one for group in optimizer.param_groups for one in group["params"]]
                self._aside = [(one, one.grad) for one in parameters if one.grad is not None]
                for parameter, _ in self._aside:
                    parameter.grad = None
            self._count()

    def _after(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        aside, self._aside = self._aside, []
        for parameter, gradient in aside:
            parameter.grad = gradient

    def _count(self) -> None:
        self._number = (self._number + 1) % self.group
        self._cleared = self._due = False
        self.took()

    def _refuse(self, why: str) -> None:
        self._refused = True
        self.say(why)

    # -- switching -------------------------------------------------------------------------------------------

    def on(self) -> None:
        """A group begins."""
        super().on()
        self._begin()

    def off(self) -> None:
        """What a group that is not complete has added up is dropped."""
        super().off()
        if self._number and not self._refused:
            for optimizer, _ in self._optimizers.values():
                optimizer.zero_grad()
        self._begin()
