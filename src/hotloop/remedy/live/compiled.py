"""Live form of ``torch.compile``: the module of the first training forward is compiled in place.

As with ``Module.compile`` the names in the state dict stay. What cannot be compiled runs as the script has it
(dynamo's ``suppress_errors``), frame by frame.
"""

from __future__ import annotations

import importlib
import sys
from types import MethodType
from typing import Any

from hotloop.remedy.live.form import Form, around_outermost, has_parameters
from hotloop.state.identity import Known


class Compile(Form):
    """Compiled once, at the first forward with gradients; that takes a step of many seconds."""

    switchable = True
    warm_up = 5

    def install(self) -> None:
        """At the outermost forward."""
        # What was compiled of each module, None where nothing was; functions, that hold no module alive.
        self._calls: Known[tuple[Any]] = Known()
        around_outermost(self, self._begin)

    def on(self) -> None:
        """Compiled, where it was."""
        super().on()
        for module, (call,) in self._calls.values():
            if call is not None:
                module._compiled_call_impl = MethodType(call, module)

    def off(self) -> None:
        """As the script has it."""
        super().off()
        for module, (call,) in self._calls.values():
            if call is not None:
                module._compiled_call_impl = None

    def mode(self) -> str | None:
        """The mode of ``torch.compile``."""
        return None if self.value in (None, "default") else str(self.value)

    def _begin(self, module: Any, args: Any, kwargs: Any) -> None:
        if self._calls.get(module) or not self.torch.is_grad_enabled() or not has_parameters(module):
            return
        self._calls.put(module, (None,))
        if module._compiled_call_impl is not None or hasattr(module, "_orig_mod"):
            self.say("the script compiles it already")
            return
        dynamo = importlib.import_module("torch._dynamo")
        dynamo.config.suppress_errors = True
        # A module of torch's own lies in a file that dynamo skips: a frame around it is compiled instead.
        wrap = importlib.import_module("torch._dynamo.external_utils").wrap_inline
        own = type(module).__module__.startswith("torch.")
        plain = type(module)._call_impl
        call = self.torch.compile(wrap(plain) if own else plain, mode=self.mode())
        module._compiled_call_impl = MethodType(call, module)
        self._calls.put(module, (call,))
        self.took()

    def status(self) -> str:
        """In effect only where dynamo made a graph and compiled it."""
        words = super().status()
        utils: Any = sys.modules.get("torch._dynamo.utils")
        if words != "in effect" or utils is None:
            return words
        graphs = utils.counters["stats"].get("unique_graphs", 0)
        if not utils.counters["frames"].get("ok", 0):
            return "nothing could be compiled: it runs as the script has it"
        return f"in effect: {graphs} graph{'' if graphs == 1 else 's'}"


class CudaGraphs(Compile):
    """``reduce-overhead``: the kernels of a step are replayed as one CUDA graph."""

    def mode(self) -> str | None:
        """The mode of ``torch.compile``; without a CUDA device there is nothing to replay."""
        return "reduce-overhead"
