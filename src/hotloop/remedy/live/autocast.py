"""Live form of mixed precision: autocast around the outermost forward, its outputs in float32 again.

Losses computed outside the model see float32, as they would with the criterion inside autocast.
"""

from __future__ import annotations

import copy
from typing import Any

from hotloop.remedy.live.form import Form, around_outermost, has_parameters


class AutocastBf16(Form):
    """bfloat16: the range of float32, so no gradient scaler is needed."""

    switchable = True

    def install(self) -> None:
        """Around the outermost forward."""
        around_outermost(self, self._begin, self._end, self._leave)

    def _begin(self, module: Any, args: Any, kwargs: Any) -> Any:
        if not has_parameters(module):
            return None
        parameter = next(module.parameters())
        torch, kind = self.torch, parameter.device.type
        if parameter.dtype != torch.float32:
            return self.refused(f"parameters are {parameter.dtype} already")
        if torch.is_autocast_enabled(kind):
            return self.refused("the script uses autocast already")
        if kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
            return self.refused("this GPU has no bfloat16 units")
        context = torch.autocast(kind, dtype=torch.bfloat16)
        context.__enter__()
        self.took()
        return args, kwargs, context

    def _leave(self, begun: Any) -> None:
        begun[2].__exit__(None, None, None)

    def _end(self, context: Any, result: Any) -> Any:
        return widened(self.torch, result, {self.torch.bfloat16, self.torch.float16})


def widened(torch: Any, value: Any, narrow: set[Any]) -> Any:
    """``value`` with every tensor of a narrow type in float32, in containers too."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in narrow else value
    if isinstance(value, dict):
        changed = copy.copy(value)  # a subclass (a model's output with names) stays what it is
        for key, inner in value.items():
            changed[key] = widened(torch, inner, narrow)
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(widened(torch, inner, narrow) for inner in value))
    if type(value) in (list, tuple):
        return type(value)(widened(torch, inner, narrow) for inner in value)
    return value
