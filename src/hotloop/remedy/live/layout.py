"""Live form of ``channels_last``: weights once, images at every outermost forward."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from hotloop.remedy.live.form import Form
from hotloop.remedy.live.outermost import around_outermost, has_parameters
from hotloop.remedy.live.strides import align, fits, lay_out
from hotloop.state.identity import Known


class ChannelsLast(Form):
    """Convolutional networks on images (4 dimensions)."""

    switchable = True
    warm_up = 3

    def install(self) -> None:
        """Around the outermost forward, and before each step."""
        self._modules: Known[str] = Known()  # why not, "" where it is laid out
        self._weights: Known[tuple[int, ...]] = Known()  # the strides the script had
        self._moved = False
        around_outermost(self, self._begin)
        register = sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook
        self.probe.hooks.at_undo(register(self.guard(self._before_step)).remove)

    def off(self) -> None:
        """Weights as they lay before."""
        super().off()
        for weight, strides in self._weights.values():
            _both(weight, strides)
        self._weights.clear()
        self._modules.clear()

    def _begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        why = self._modules.get(module)
        if why is None:
            if not has_parameters(module):
                return None
            why = self._lay_out(module)
            self._modules.put(module, why)
            if why and not self.count:
                self.say(why)
        if why:
            return None
        self.took()
        return tuple(map(self._image, args)), {name: self._image(v) for name, v in kwargs.items()}, None

    def _lay_out(self, module: Any) -> str:
        """Move the weights; why not, where they stay."""
        last = self.torch.channels_last
        if not any(isinstance(inner, self.torch.nn.Conv2d) for inner in module.modules()):
            return "the model has no Conv2d"
        images = [weight for weight in module.parameters() if weight.dim() == 4]
        moving = [weight for weight in images if not weight.is_contiguous(memory_format=last)]
        if any(not weight.is_contiguous() for weight in images if weight.is_contiguous(memory_format=last)):
            return "the script has it already"
        if any(not self._owns(weight) for weight in moving):
            return "weights share their memory with others"
        for weight in moving:
            self._weights.put(weight, weight.stride())
            _both(weight, weight.data.contiguous(memory_format=last).stride())
            self._moved = True
        return ""

    def _owns(self, weight: Any) -> bool:
        """Whether a weight is a plain tensor alone in its memory: no part of a flat or sharded one."""
        plain = type(weight.data) is self.torch.Tensor
        return plain and weight.untyped_storage().nbytes() == weight.numel() * weight.element_size()

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Gradients and state follow the weights, where kernels may look at no strides."""
        if not self._moved or self.torch.compiler.is_compiling():
            return
        own = type(optimizer).__module__.startswith("torch.optim")
        if not own or any(group.get("fused") for group in optimizer.param_groups):
            align(self.torch, optimizer)

    def _image(self, value: Any) -> Any:
        if isinstance(value, self.torch.Tensor) and value.dim() == 4:
            return value.contiguous(memory_format=self.torch.channels_last)
        return value


def _both(weight: Any, strides: Sequence[int]) -> None:
    """A weight, and its gradient where it is kept between steps."""
    lay_out(weight, strides)
    if weight.grad is not None and not fits(weight, weight.grad):
        lay_out(weight.grad, strides)
