"""What modules are trained with where no loader drives the loop: a ``get_batch``, a generator, a buffer."""

from __future__ import annotations

from typing import Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.probe import Probe
from hotloop.state.modules import parameters

NAME: Final = "observers.evidence"

_CALL: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or inside[0] or not self.training or get_ident() != owner[0]:
        return original(self, *args, **kwargs)
    if count.fetched or count.batches:
        return original(self, *args, **kwargs)
    try:
        if grad_enabled() and next(parameters(self), None) is not None:
            content((args, kwargs), 0)
    except Exception as error:
        failed(switch, error)
    return original(self, *args, **kwargs)
"""


def install(probe: Probe) -> None:
    """Comes after the observer of modules: outermost calls are those that it is not inside of."""
    if probe.handed is None:
        return
    hooks, torch = probe.hooks, probe.torch
    hooks.patch(
        torch.nn.Module,
        "__call__",
        lambda original: compile_beside(
            original,
            _CALL,
            inside=probe.inside,
            count=probe.count,
            switch=hooks.switch(NAME),
            failed=hooks.failed,
            grad_enabled=torch.is_grad_enabled,
            parameters=parameters,
            content=probe.handed.content,
        ),
    )
