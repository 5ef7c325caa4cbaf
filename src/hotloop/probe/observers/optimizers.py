"""Optimizer steps, zero_grad, gradient clipping and the gradient scaler."""

from __future__ import annotations

import sys
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

from hotloop import fast
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.counting import with_limit
from hotloop.probe.ending import ending, in_python
from hotloop.probe.probe import Probe
from hotloop.record.rows import CLIP, OPTIMIZER, SCALER, ZERO_GRAD
from hotloop.state.identity import Known

NAME: Final = "observers.optimizers"
_SCALER_OPS: Final = {"step": 1, "unscale_": 2, "update": 3}

_BEFORE: Final = """
def {name}(optimizer, args, kwargs):
    if is_compiling(){elsewhere}:
        return None
    {stop_if_done}
    began(optimizer)
"""
_AFTER: Final = """
def {name}(optimizer, args, kwargs):
    if is_compiling(){elsewhere}:
        return None
    stepped(optimizer)
"""
_ZERO: Final = """
def {name}(*args, **kwargs):
    if is_compiling():
        return original(*args, **kwargs)
    start = cleared()
    result = original(*args, **kwargs)
    if start:
        cleared(start)
    return result
"""


class Optimizers:
    """Observes every ``torch.optim.Optimizer``, existing ones too, through torch's global hooks."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._known: Known[int] = Known()
        self._count = 0

    def restart(self) -> None:
        """In a forked child."""
        self._known.clear()
        self._count = 0

    def wrapper(self, original: Any, source: str, what: str, kind: int) -> Any:
        """One of the functions above; ``what`` is its end."""
        probe, hooks = self._probe, self._probe.hooks
        known, in_round = self._known.entries, probe.count.stepped
        asked = {"began": (self._nested,), "stepped": (known, in_round, self._new, probe.updated, probe.tick)}
        body = {"began": self._began, "stepped": self._stepped, "cleared": self._cleared}[what]
        end: Any = ending(probe, NAME, what, kind, *asked.get(what, ())) or in_python(probe, NAME, body)
        # What is compiled asks itself.
        elsewhere = " or get_ident() != owner[0]" if fast.Hook is None or probe.count.may_end else ""
        return compile_beside(
            original,
            with_limit(source.replace("{elsewhere}", elsewhere), probe.count, "stop_if_done()"),
            switch=hooks.switch(NAME),
            stop_if_done=self.stop_if_done,
            **{what: end},
        )

    # -- in Python -------------------------------------------------------------------------------------------

    def _began(self, frame: FrameType, stop: int, optimizer: Any) -> None:
        count = self._probe.count
        if count.opened and frame.f_back is not None and self._nested(frame.f_back):
            return
        site = self._probe.site(frame)
        count.opened, count.opened_at, count.opened_site = id(optimizer), perf_counter_ns(), site

    def _stepped(self, frame: FrameType, stop: int, optimizer: Any) -> None:
        """A step inside a step belongs to the outer one."""
        probe, count = self._probe, self._probe.count
        if count.opened != id(optimizer):
            return
        count.opened, start, site = 0, count.opened_at, count.opened_site
        number = self._known.get(optimizer) or self._new(optimizer, site)
        probe.emit(OPTIMIZER, start, stop - start, 0, site, number)
        count.updates += 1
        in_round = count.stepped
        if number in in_round:
            count.rounds += 1
            if len(in_round) > 1:
                in_round.clear()
                in_round.add(number)
        else:
            if not in_round:
                count.rounds += 1
            in_round.add(number)
        if count.callbacks:
            probe.updated()
        if stop >= count.next_tick:
            probe.tick(stop)

    def _cleared(self, frame: FrameType, stop: int, start: int) -> None:
        self._probe.emit(ZERO_GRAD, start, stop - start, 0, self._probe.site(frame))

    def seen(self) -> list[Any]:
        """The optimizers that stepped so far."""
        return [optimizer for optimizer, _ in self._known.values()]

    def stop_if_done(self) -> None:
        """Where there is no loader, ``--steps`` ends the run between two steps here."""
        if not self._probe.count.opened and not self._probe.count.fed:
            self._probe.count.stop_if_done()

    def _nested(self, frame: FrameType) -> bool:
        """Whether another step is running above this one; if not, the open one was left by an exception."""
        above = frame.f_back
        while above is not None:
            if above.f_code is frame.f_code:
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
            fused=first.get("fused"),
            foreach=first.get("foreach"),
            num_params=sum(len(group["params"]) for group in groups),
            lr=lr if isinstance(lr, (int, float)) else None,
            held=self._held(optimizer),
            site=site,
        )
        return self._count

    def _held(self, optimizer: Any) -> dict[str, list[int]]:
        """Kind of device -> bytes of parameters, gradients and state after the first step; sizes only."""
        held: dict[str, list[int]] = {}
        tensor = self._probe.torch.Tensor
        with self._probe.torch._C.DisableTorchFunction():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    state = optimizer.state.get(parameter) or {}
                    inner = state.values() if isinstance(state, dict) else ()
                    rest = [value for value in inner if isinstance(value, tensor)]
                    for place, one in ((0, parameter), (1, parameter.grad), *((2, value) for value in rest)):
                        if one is not None:
                            local = getattr(one, "_local_tensor", one)  # the part of a DTensor that is here
                            sizes = held.setdefault(local.device.type, [0, 0, 0])
                            sizes[place] += local.numel() * local.element_size()
        return held


def install(probe: Probe) -> None:
    """Observe this process's optimizers."""
    torch, hooks = probe.torch, probe.hooks
    optimizers = probe.optimizers = Optimizers(probe)
    probe.on_fork(NAME, optimizers.restart)
    module = sys.modules["torch.optim.optimizer"]
    for register, source, what in (
        (module.register_optimizer_step_pre_hook, _BEFORE, "began"),
        (module.register_optimizer_step_post_hook, _AFTER, "stepped"),
    ):
        hook = optimizers.wrapper(register, source, what, OPTIMIZER)
        if fast.attach is not None and not probe.count.may_end:
            fast.attach(hook, hook.__globals__[what])
        hooks.hand_over(register, hook)
    cleared = (_ZERO, "cleared", ZERO_GRAD)
    hooks.patch(torch.optim.Optimizer, "zero_grad", lambda original: optimizers.wrapper(original, *cleared))

    def at_site(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> int:
        return probe.site(frame)

    def clipped(site: int, start: int, stop: int, result: Any) -> None:
        probe.emit(CLIP, start, stop - start, 0, site)

    utils = torch.nn.utils
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        hooks.around(utils, name, NAME, at_site, clipped, also=(utils.clip_grad,))
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

    def begin_scale(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        loss = args[1] if len(args) > 1 else kwargs.get("outputs")
        return (loss,) if args[0].is_enabled() else None

    def scaled(token: tuple[Any], start: int, stop: int, result: Any) -> None:
        probe.note_scaled(result)
        if probe.losses is not None and probe.torch.is_tensor(token[0]):  # backward begins with another
            probe.losses.read(token[0], stop)

    probe.hooks.around(scaler_class, "scale", NAME, begin_scale, scaled)
