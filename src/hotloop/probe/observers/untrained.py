"""Weights that get gradients in every backward, and that nothing updates."""

from __future__ import annotations

from itertools import takewhile
from typing import Any, Final

from hotloop.probe.observers.modules import NAME as MODULES
from hotloop.probe.observers.modules import unwrapped
from hotloop.probe.probe import Probe
from hotloop.state.modules import named_modules

NAME: Final = "observers.untrained"
#: Parameters, and elements of each, that are looked at twice: an update by hand shows in some of them.
_PARAMETERS: Final = 4
_ELEMENTS: Final = 8


class Untrained:
    """Looks at seconds 1, 2, 4, 8, ...: the same weights with other gradients, and in no optimizer, twice."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seconds, self._told = 0, False
        self._before: dict[int, list[tuple[Any, Any]]] = {}  # by the id of the module's first such parameter

    def each_second(self) -> None:
        """Look where it is time, and the device can be asked."""
        self._seconds += 1
        probe, torch = self._probe, self._probe.torch
        due = (
            self._seconds & (self._seconds - 1) == 0
            and not self._told
            and not probe.hooks.switch(MODULES).off
        )
        if not due or (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return
        with torch._C.DisableTorchFunction(), torch.no_grad():
            groups = [group for one in probe.optimizers.seen() for group in one.param_groups]
            held = {id(parameter) for group in groups for parameter in group["params"]}
            for module in probe.modules.seen():
                self._look(module, held)

    def _look(self, module: Any, held: set[int]) -> None:
        below = dict(named_modules(unwrapped(module)[0]))
        found = [
            (path, one, one.grad)
            for path, part in below.items()
            for one in part.__dict__.get("_parameters", {}).values()
            if getattr(one, "grad", None) is not None and not one.grad.is_sparse and id(one) not in held
        ]
        if not found or not held:
            return
        now = [(_first(one), _first(grad)) for _, one, grad in found[:_PARAMETERS]]
        before = self._before.get(id(found[0][1]), [])
        self._before[id(found[0][1])] = now
        weights, gradients = ([a[i] == b[i] for a, b in zip(before, now, strict=False)] for i in (0, 1))
        if weights and all(weights) and not all(gradients):
            self._told = True
            each = zip(*(path.split(".") for path, _, _ in found), strict=False)
            path = ".".join(one[0] for one in takewhile(lambda one: len({*one}) == 1, each))
            number, count = self._probe.modules.entry(module).id, sum(one.numel() for _, one, _ in found)
            cls = type(below[path]).__name__
            self._probe.note("untrained", id=number, path=path, num_params=count, **{"class": cls})


def _first(tensor: Any) -> Any:
    """Of a DTensor those of the part that is here: asking for others would wait for all ranks."""
    local = getattr(tensor, "_local_tensor", tensor)
    return local.detach().reshape(-1)[:_ELEMENTS].tolist()


def install(probe: Probe) -> None:
    """Observe this process's modules and optimizers."""
    probe.on_second(NAME, Untrained(probe).each_second)
