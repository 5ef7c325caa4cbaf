"""Weights that get gradients in every backward, and that nothing updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hotloop.probe.observers.modules import unwrapped
from hotloop.state.modules import named_modules

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.untrained"
#: Parameters, and elements of each, that are looked at twice: an update by hand shows in some of them.
_PARAMETERS: Final = 4
_ELEMENTS: Final = 8


class Untrained:
    """Looks at seconds 1, 2, 4, 8, ...: the same weights with other gradients, and in no optimizer, twice."""

    def __init__(self, probe: Probe) -> None:
        self._probe, self._torch = probe, probe.torch
        self.restart()

    def restart(self) -> None:
        """In a forked child: nothing was trained here."""
        self._seconds, self._told = 0, False
        self._before: dict[int, list[tuple[Any, Any]]] = {}  # by the id of the module's first such parameter

    def each_second(self) -> None:
        """Look where it is time, and the device can be asked."""
        self._seconds += 1
        due = self._seconds & (self._seconds - 1) == 0 and self._probe.modules is not None
        cuda = self._torch.cuda
        if not due or self._told or (cuda.is_initialized() and cuda.is_current_stream_capturing()):
            return
        with self._torch._C.DisableTorchFunction(), self._torch.no_grad():
            groups = [group for one in self._probe.optimizers.seen() for group in one.param_groups]
            held = {id(parameter) for group in groups for parameter in group["params"]}
            for module in self._probe.modules.seen():
                self._look(module, held)

    def _look(self, module: Any, held: set[int]) -> None:
        inner, left = unwrapped(module)[0], dict[str, list[Any]]()
        for path, one in named_modules(inner):
            for parameter in one.__dict__.get("_parameters", {}).values():
                grad = getattr(parameter, "grad", None)
                if grad is not None and not grad.is_sparse and id(parameter) not in held:
                    left.setdefault(path, []).append(parameter)
        found = [parameter for parameters in left.values() for parameter in parameters]
        if not found or not held:
            return
        now = [tuple(map(_first, (one, one.grad))) for one in found[:_PARAMETERS]]
        before = self._before.get(id(found[0]), ())
        self._before[id(found[0])] = now
        same = [(a[0] == b[0], a[1] == b[1]) for a, b in zip(before, now, strict=False)]
        if same and all(weights for weights, _ in same) and not all(grads for _, grads in same):
            self._told = True
            path = _shared(list(left))
            cls = type(dict(named_modules(inner))[path]).__name__
            number, count = self._probe.modules.entry(module).id, sum(one.numel() for one in found)
            self._probe.note("untrained", id=number, path=path, num_params=count, **{"class": cls})


def _first(tensor: Any) -> Any:
    return tensor.detach().reshape(-1)[:_ELEMENTS].tolist()


def _shared(paths: list[str]) -> str:
    """The path of the innermost module that has all of these below it."""
    split = [path.split(".") for path in paths]
    length = next(
        (n for n, parts in enumerate(zip(*split, strict=False)) if len({*parts}) > 1), min(map(len, split))
    )
    return ".".join(split[0][:length])


def install(probe: Probe) -> None:
    """Observe this process's modules and optimizers."""
    untrained = Untrained(probe)
    probe.on_fork(NAME, untrained.restart)
    probe.on_second(NAME, untrained.each_second)
