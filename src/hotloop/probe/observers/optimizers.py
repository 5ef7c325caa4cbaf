"""Optimizer steps, zero_grad, gradient clipping and the gradient scaler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.identity import Known
from hotloop.record.rows import CLIP, OPTIMIZER, SCALER, ZERO_GRAD

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.optimizers"
_SCALER_OPS: Final = {"step": 1, "unscale_": 2, "update": 3}

_HOOK: Final = """
def {name}(optimizer, args, kwargs):
    if is_compiling() or get_ident() != owner[0] or switch.off:
        return None
    if count.limit:
        stop_if_done()
    try:
        act(optimizer, getframe(1))
    except Exception as error:
        failed(switch, error)
"""


class Optimizers:
    """Observes every ``torch.optim.Optimizer``, existing ones too, through torch's global hooks."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._site, self._emit, self._updated = probe.site, probe.emit, probe.updated
        self._known: Known[int] = Known()
        self._count = 0
        self._open: tuple[int, int, int] | None = None  # id(optimizer), start, site
        self._step_code: Any = None

    def restart(self) -> None:
        """In a forked child."""
        self._known = Known()
        self._count = 0
        self._open = None

    def before(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer is about to step."""
        self._step_code = frame.f_code
        if self._open is None or not self._nested(frame):
            self._open = (id(optimizer), perf_counter_ns(), self._site(frame))

    def after(self, optimizer: Any, frame: FrameType) -> None:
        """An optimizer has stepped; a step inside a step belongs to the outer one."""
        stop = perf_counter_ns()
        opened = self._open
        if opened is None or opened[0] != id(optimizer):
            return
        self._open = None
        found = self._known.entries.get(id(optimizer))
        known = found is not None and found[0]() is optimizer
        number = found[1] if found is not None and known else self._new(optimizer, opened[2])
        self._emit(OPTIMIZER, opened[1], stop - opened[1], 0, opened[2], number)
        self._updated(number, stop)

    def number(self, optimizer: Any) -> int:
        """The id of an optimizer that has stepped, else 0."""
        return self._known.get(optimizer) or 0

    def stop_if_done(self) -> None:
        """Where there is no loader, ``--steps`` ends the run between two steps here."""
        if self._open is None and not self._probe.count.fed:
            self._probe.count.stop_if_done()

    def _nested(self, frame: FrameType) -> bool:
        """Whether another step is running above this one; if not, the open one was left by an exception."""
        above = frame.f_back
        while above is not None:
            if above.f_code is self._step_code:
                return True
            above = above.f_back
        return False

    def _new(self, optimizer: Any, site: int) -> int:
        self._count += 1
        self._known.put(optimizer, self._count)
        groups = optimizer.param_groups
        first = groups[0] if groups else {}
        lr = first.get("lr")
        self._probe.note(
            "optimizer",
            id=self._count,
            **{"class": type(optimizer).__name__},
            module=type(optimizer).__module__,
            fused=first.get("fused"),
            foreach=first.get("foreach"),
            capturable=first.get("capturable"),
            num_params=sum(len(group["params"]) for group in groups),
            num_groups=len(groups),
            lr=lr if isinstance(lr, (int, float)) else None,
            site=site,
        )
        return self._count


def _hook(optimizers: Optimizers, function: Callable[..., None], beside: Any, probe: Probe) -> Any:
    return compile_beside(
        beside,
        _HOOK,
        owner=probe.hooks.owner,
        switch=probe.hooks.switch(NAME),
        count=probe.count,
        stop_if_done=optimizers.stop_if_done,
        act=function,
        failed=probe.hooks.failed,
    )


def install(probe: Probe) -> None:
    """Observe this process's optimizers."""
    torch, hooks = probe.torch, probe.hooks
    optimizers = Optimizers(probe)
    probe.on_fork(NAME, optimizers.restart)
    module = sys.modules["torch.optim.optimizer"]
    for register, function in (
        (module.register_optimizer_step_pre_hook, optimizers.before),
        (module.register_optimizer_step_post_hook, optimizers.after),
    ):
        hooks.at_undo(register(_hook(optimizers, function, register, probe)).remove)

    def zeroed(args: tuple[Any, ...], frame: FrameType, start: int, stop: int) -> None:
        probe.emit(ZERO_GRAD, start, stop - start, 0, probe.site(frame), optimizers.number(args[0]))

    def clipped(args: tuple[Any, ...], frame: FrameType, start: int, stop: int) -> None:
        probe.emit(CLIP, start, stop - start, 0, probe.site(frame))

    hooks.after(torch.optim.Optimizer, "zero_grad", NAME, zeroed)
    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        hooks.after(utils, name, NAME, clipped, also=(utils.clip_grad,))
    _install_scaler(probe)


def _install_scaler(probe: Probe) -> None:
    scaler_class = getattr(getattr(probe.torch, "amp", None), "GradScaler", None)
    if scaler_class is None:
        return

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> int | None:
        return probe.site(frame) if args[0].is_enabled() else None

    for name, operation in _SCALER_OPS.items():

        def end(site: int, start: int, stop: int, result: Any, operation: int = operation) -> None:
            probe.emit(SCALER, start, stop - start, 0, site, operation)

        probe.hooks.around(scaler_class, name, NAME, begin, end)

    def scaled(token: int, start: int, stop: int, result: Any) -> None:
        probe.note_scaled(result)

    probe.hooks.around(scaler_class, "scale", NAME, begin, scaled)
