"""Live form of float16: autocast around the outermost forward, and what ``torch.amp.GradScaler`` does.

Backward begins with the scale in place of 1, and gradients are divided by it as soon as backward is done,
which GradScaler does before the step: what the script reads, clips or adds up in between is what it would be
without. As there, an update whose gradients are not finite is skipped and halves the scale, and 2,000 finite
ones in a row double it. It waits for the device once a step, as GradScaler.step does.

Whether it can be done right shows in the first two updates, which are the script's own; what comes to light
later ends it, and what was computed in float16 by then goes backward with a scale of 1.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.remedy.live.autocast import AutocastBf16
from hotloop.remedy.live.outermost import has_parameters

# As torch.amp.GradScaler has them.
_INIT_SCALE: Final = 2.0**16
_GROWTH: Final = 2.0
_BACKOFF: Final = 0.5
_INTERVAL: Final = 2000

_KINDS: Final = ("cpu", "cuda")
_DEPTH: Final = 3

_BACKWARD: Final = """
def {name}(self, gradient=None, *args, **kwargs):
    if is_compiling() or going[0] or get_ident() != owner[0]:
        return original(self, gradient, *args, **kwargs)
    scaled = begin(self, gradient, args, kwargs)
    going[0] = True
    try:
        return original(self, gradient if scaled is None else scaled, *args, **kwargs)
    finally:
        going[0] = False
        if scaled is not None:
            end()
"""

# What a script does that has gradients at other places, or in other numbers, than between backward and step.
_OTHERWISE: Final = """
def {name}(*args, **kwargs):
    if not is_compiling() and not going[0] and get_ident() == owner[0]:
        refuse(why)
    return original(*args, **kwargs)
"""
_OWN_SCALER: Final = """
def {name}(self, *args, **kwargs):
    if not is_compiling() and self.is_enabled():
        refuse(why)
    return original(self, *args, **kwargs)
"""
_OWN_AUTOCAST: Final = """
def {name}(self):
    if not is_compiling() and self._enabled and not (going[0] or entering[0]) and get_ident() == owner[0]:
        refuse(why)
    return original(self)
"""

_IN_BACKWARD: Final = "a hook reads gradients while backward makes them"


class AutocastFp16(AutocastBf16):
    """float16: gradients that are too small for it are scaled up on their way."""

    dtype = "float16"

    def install(self) -> None:
        """Around forward, backward and the optimizer, and where scripts do what does not go with it."""
        torch, hooks = self.torch, self.probe.hooks
        self._modules: Known[bool] = Known()  # whether it was looked at
        self._parameters: Known[bool] = Known()
        self._optimizers: Known[bool] = Known()
        self._scale, self._finite_in_a_row = _INIT_SCALE, 0
        self._in_force = 0.0  # the scale of the backward that runs
        self._ready = self._refused = self._walked = False
        self._half = False  # what goes backward next may have been computed in float16
        self._due = False  # gradients were made in that way, and no step has come for them
        self._found: dict[Any, Any] = {}  # device -> whether backward left something not finite there
        self._overflow = False  # the same, once it was read
        self._updates = self._skipped = 0
        self._depth = 0  # of steps within steps: a subclass calls that of its parent
        self._aside: list[tuple[Any, Any]] = []
        self._going = [False]
        super().install()
        self._patch(torch.Tensor, "backward", _BACKWARD, begin=self._begin_backward, end=self._end_backward)
        for owner, name, why in (
            (torch.autograd, "backward", "the script calls torch.autograd.backward itself"),
            (torch.autograd, "grad", "the script takes gradients with torch.autograd.grad"),
            (torch.Tensor, "register_hook", _IN_BACKWARD),
            (torch.Tensor, "register_post_accumulate_grad_hook", _IN_BACKWARD),
            (torch.Tensor, "retain_grad", "the script keeps gradients within the model"),
        ):
            self._patch(owner, name, _OTHERWISE, refuse=self._refuse, why=why)
        scaler, own = "the script has a gradient scaler", "the script uses autocast already"
        self._patch(torch.amp.GradScaler, "scale", _OWN_SCALER, refuse=self._refuse, why=scaler)
        self._patch(torch.autocast, "__enter__", _OWN_AUTOCAST, refuse=self._refuse, why=own)
        module = sys.modules["torch.optim.optimizer"]
        hooks.at_undo(module.register_optimizer_step_pre_hook(self.guard(self._before)).remove)
        hooks.at_undo(module.register_optimizer_step_post_hook(self._after).remove)

    def status(self) -> str:
        """Also how many updates were skipped."""
        words = super().status()
        if words != "in effect" or not self._skipped:
            return words
        skipped = f"{self._skipped} of {self._updates} updates were skipped, as their gradients overflowed"
        return f"in effect: {skipped}; the scale is {self._scale:g}"

    def off(self) -> None:
        """As the script has it, backward too."""
        super().off()
        self._half = False

    def _patch(self, owner: Any, name: str, source: str, **functions: Any) -> None:
        names: dict[str, Any] = {
            key: self.guard(one) if callable(one) else one for key, one in functions.items()
        }
        names |= {"going": self._going, "entering": self.entering, "owner": self.probe.hooks.recorded}
        self.probe.hooks.patch(owner, name, lambda original: compile_beside(original, source, **names))

    def _refuse(self, why: str) -> None:
        if not self._refused:
            self._refused = True
            self.say(why)
            self.write()

    # -- forward ---------------------------------------------------------------------------------------------

    def lacks(self, kind: str) -> str:
        """Where torch has no kernel that looks for gradients that are not finite, or that is not known."""
        return "" if kind in _KINDS else f"float16 on {kind} is not known here"

    def _begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        if self._refused or not self._ready or self._going[0]:  # what a checkpoint recomputes is as it was
            return None
        if not self.torch.is_grad_enabled():  # evaluation stays in single precision
            return None
        self._depth = 0  # a step that raised came to no end
        if not has_parameters(module):
            return None
        if not self._modules.get(module):
            self._modules.put(module, True)
            why = self._unfit(module)
            if why:
                return self._refuse(why)
        if any(self._is_input_with_gradient(one) for one in _tensors((args, kwargs), self.torch.Tensor)):
            return self._refuse("an input of the model asks for gradients")
        begun = super()._begin(module, args, kwargs)
        self._half = self._half or begun is not None
        return begun

    def _unfit(self, module: Any) -> str:
        """Why gradients of a module cannot be scaled, "" where they can; its parameters are known then."""
        torch, inner = self.torch, list(module.modules())
        if any(type(one).__name__ in ("FullyShardedDataParallel", "FSDPModule") for one in inner):
            return "the parameters are sharded: each rank would skip other updates"
        hooks = sys.modules["torch.nn.modules.module"]
        if hooks._global_backward_hooks or hooks._global_backward_pre_hooks:
            return _IN_BACKWARD
        if any(one._backward_hooks or one._backward_pre_hooks for one in inner):
            return _IN_BACKWARD
        parameters = list(module.parameters())
        if any(type(one) is not torch.nn.Parameter for one in parameters):
            return "the parameters are no plain ones"
        other = next((one.dtype for one in parameters if one.dtype != torch.float32), None)
        if other is not None:
            return f"parameters are {other} already"
        for one in parameters:
            self._parameters.put(one, True)
        return ""

    def _is_input_with_gradient(self, tensor: Any) -> bool:
        own = isinstance(tensor, self.torch.nn.Parameter)
        return tensor.requires_grad and tensor.is_leaf and not own

    # -- backward --------------------------------------------------------------------------------------------

    def _begin_backward(self, loss: Any, gradient: Any, args: Any, kwargs: Any) -> Any:
        """What backward is to begin with; None: as the script has it."""
        if not self._half:
            return None
        torch = self.torch
        _, create, inputs = (*args, None, None, None)[:3]
        if create or kwargs.get("create_graph"):
            return self._refuse("backward makes a graph of its own")
        if gradient is None and loss.numel() != 1:
            return None  # torch says what is wrong with it
        if inputs is not None or kwargs.get("inputs") is not None:
            self._refuse("backward is asked for the gradients of some inputs")
        elif loss.dtype not in (torch.float32, torch.float64):
            self._refuse(f"the loss is {loss.dtype}")
        elif not self._walked:
            self._walked = True
            if self._has_strays(loss):
                self._refuse("backward reaches tensors that neither the model nor the optimizer holds")
        scale = 1.0 if self._refused else self._scale
        if scale != 1.0:
            with torch.no_grad():
                for values in self._gradients().values():
                    torch._foreach_mul_(values, scale)
        self._in_force = scale
        return torch.full_like(loss, scale) if gradient is None else gradient * scale

    def _end_backward(self) -> None:
        """Divide by the scale, and look for what is not finite in what the optimizer will use."""
        by = 1.0 / self._in_force
        updated = [one for optimizer, _ in self._optimizers.values() for one in _of(optimizer)]
        own = {id(one) for one in updated}
        self._found = self._divided(self._gradients(updated), by)
        self._divided(self._gradients(one for one in self._known() if id(one) not in own), by)
        self._due = True

    def _divided(self, gradients: dict[Any, list[Any]], by: float) -> dict[Any, Any]:
        torch = self.torch
        found: dict[Any, Any] = {}
        with torch.no_grad():
            for (device, _), values in gradients.items():
                if device not in found:
                    found[device] = torch.zeros((), dtype=torch.float32, device=device)
                factor = torch.full((), by, dtype=torch.float32, device=device)
                torch._amp_foreach_non_finite_check_and_unscale_(values, found[device], factor)
        return found

    def _gradients(self, parameters: Iterable[Any] | None = None) -> dict[Any, list[Any]]:
        """The gradients there are by device and type, of all parameters that are known."""
        found: dict[Any, list[Any]] = defaultdict(list)
        for parameter in self._known() if parameters is None else parameters:
            gradient = parameter.grad
            if gradient is not None:
                values = gradient._values() if gradient.is_sparse else gradient
                found[values.device, values.dtype].append(values)
        return found

    def _known(self) -> list[Any]:
        known = self._parameters.entries
        for optimizer, _ in self._optimizers.values():
            for parameter in _of(optimizer):
                if id(parameter) not in known:
                    self._parameters.put(parameter, True)
        return [parameter for parameter, _ in self._parameters.values()]

    def _has_strays(self, loss: Any) -> bool:
        """Whether backward puts gradients where nobody would divide them."""
        known = {id(parameter) for parameter in self._known()}
        seen: set[Any] = set()
        ahead = [loss.grad_fn]
        while ahead:
            node = ahead.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if type(node).__name__ == "AccumulateGrad" and id(node.variable) not in known:
                return True
            ahead += [inner for inner, _ in node.next_functions]
        return False

    # -- the optimizer ---------------------------------------------------------------------------------------

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.torch.compiler.is_compiling():
            return
        self._depth += 1
        if self._depth > 1:
            return
        self._look_at(optimizer, args, kwargs)
        overflowed = self._overflowed(optimizer)
        if overflowed:  # an optimizer of torch's leaves parameters without a gradient alone
            self._aside = [(one, one.grad) for one in _of(optimizer) if one.grad is not None]
            for parameter, _ in self._aside:
                parameter.grad = None
        if self._due:
            self._due = False
            self._follow(overflowed)
        if self._refused:
            self._half = False

    def _after(self, *_: Any) -> None:
        self._depth = max(0, self._depth - 1)
        if self._depth:
            return
        aside, self._aside = self._aside, []
        for parameter, gradient in aside:
            parameter.grad = gradient

    def _look_at(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The first update shows which optimizer it is, the second that a round is over."""
        if any(value is not None for value in (*args[1:], *kwargs.values())):
            self._refuse("the step is given a closure, in which the gradients are made")
        if self._optimizers.get(optimizer):
            self._ready = True
            return
        self._optimizers.put(optimizer, True)
        if len(self._optimizers.entries) > 1:
            self._refuse("several optimizers: whose loss a backward begins with cannot be known")
        elif not str(getattr(type(optimizer).step, "__module__", "")).startswith("torch.optim"):
            self._refuse(f"{type(optimizer).__name__} steps in its own way: it cannot be made to skip one")

    def _overflowed(self, optimizer: Any) -> bool:
        """Whether the gradients of this step are not finite."""
        if self._found:
            self._overflow = any(bool(found) for found in self._found.values())
            self._found = {}
        if self._overflow and not self._due:  # another step without another backward
            again = self._divided(self._gradients(_of(optimizer)), 1.0)
            self._overflow = any(bool(found) for found in again.values())
        return self._overflow

    def _follow(self, overflowed: bool) -> None:
        """The scale for what comes."""
        self._updates += 1
        if not overflowed:
            self._finite_in_a_row += 1
            if self._finite_in_a_row == _INTERVAL:
                self._scale, self._finite_in_a_row = self._scale * _GROWTH, 0
            return
        self._skipped += 1
        self._scale, self._finite_in_a_row = self._scale * _BACKOFF, 0
        if self._scale < 1.0:
            self._refuse("gradients overflow at any scale: float16 is too narrow here")


def _of(optimizer: Any) -> Iterator[Any]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


def _tensors(value: Any, kind: type, depth: int = _DEPTH) -> Iterator[Any]:
    """The tensors among arguments, in containers too."""
    if isinstance(value, kind):
        yield value
    elif depth and isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inner, kind, depth - 1)
