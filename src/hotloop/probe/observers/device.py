"""The device clock on CUDA: timing events where the outermost phases of the training thread begin and end.

Run on an H200 (benchmarks/results/gpu-2026-11-28.md); the clock is tested against a simulated asynchronous
device (tests/probe). Nothing here costs anything before CUDA is in use: the
patches are put in place by the first housekeeping that finds it initialized.
"""

from __future__ import annotations

from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.clock import now_ns
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.deviceclock import DeviceClock
from hotloop.record.rows import (
    BACKWARD,
    DEVICE,
    DEVICE_END,
    FETCH,
    FORWARD,
    OPTIMIZER,
    SAVE,
    SYNC,
    TRANSFER,
)

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.device"

#: Path below torch (or a module's name), attribute, kind.
POINTS: Final = (
    ("autograd", "backward", BACKWARD),
    ("Tensor", "item", SYNC),
    ("Tensor", "tolist", SYNC),
    ("Tensor", "cpu", SYNC),
    ("Tensor", "__bool__", SYNC),
    ("Tensor", "__float__", SYNC),
    ("cuda", "synchronize", SYNC),
    ("Tensor", "cuda", TRANSFER),
    ("Tensor", "to", TRANSFER),
    ("", "save", SAVE),
)

_CALL: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or inside[0] or get_ident() != owner[0]:
        return original(self, *args, **kwargs)
    inside[0] = True
    mark(kind, False)
    try:
        return original(self, *args, **kwargs)
    finally:
        inside[0] = False
        mark(kind, True)
"""


class Device:
    """Marks the outermost phases on the device clock; a phase inside a phase belongs to the outer one."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._inside = [False]
        self._on = False
        cuda = probe.torch.cuda
        self.clock = DeviceClock(
            lambda: cuda.Event(enable_timing=True),
            now_ns,
            self._write,
            lambda: not cuda.is_current_stream_capturing(),
        )

    def start(self) -> None:
        """Begin as soon as CUDA is in use."""
        if self._on or not self._probe.torch.cuda.is_initialized():
            return
        self._on = True
        probe = self._probe
        hooks, torch = probe.hooks, probe.torch
        for path, name, kind in POINTS:
            owner = getattr(torch, path) if path else torch
            hooks.around(owner, name, NAME, self._begins(kind), self._ends(kind))
        mark = hooks.guard(NAME, self.clock.mark)
        for owner, name, kind in (
            (torch.nn.Module, "__call__", FORWARD),
            (torch.utils.data.dataloader._BaseDataLoaderIter, "__next__", FETCH),
        ):
            hooks.patch(owner, name, partial(self._marked, kind=kind, mark=mark))
        module = __import__("torch.optim.optimizer", fromlist=["Optimizer"])
        for register, end in (
            (module.register_optimizer_step_pre_hook, False),
            (module.register_optimizer_step_post_hook, True),
        ):
            hook = hooks.guard(
                NAME, lambda *_, end=end: self.clock.mark(OPTIMIZER, end) if self._recorded() else None
            )
            hooks.hand_over(register, hook)

    def _marked(self, original: Any, kind: int, mark: Any) -> Any:
        switch = self._probe.hooks.switch(NAME)
        return compile_beside(original, _CALL, inside=self._inside, switch=switch, mark=mark, kind=kind)

    def _recorded(self) -> bool:
        return not self._inside[0] and not self._probe.torch.compiler.is_compiling()

    def _begins(self, kind: int) -> Any:
        is_cuda = self._probe.torch.Tensor.is_cuda.__get__

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
            if self._inside[0]:
                return None
            if kind == TRANSFER:  # where it goes shows at its end; what is there already is cast, not copied
                self._inside[0] = not is_cuda(args[0])
                return self._inside[0] or None
            if kind == SYNC and args and not is_cuda(args[0]):
                return None
            self._inside[0] = True
            self.clock.mark(kind, False)
            return True

        return begin

    def _ends(self, kind: int) -> Any:
        def end(token: Any, start: int, stop: int, result: Any) -> None:
            self._inside[0] = False
            if kind != TRANSFER or getattr(result, "is_cuda", False):
                self.clock.mark(kind, True)

        return end

    def _write(self, host: int, lag: int, kind: int, end: bool) -> None:
        self._probe.emit(DEVICE, host, lag, 0, 0, kind, 0, DEVICE_END if end else 0)


def install(probe: Probe) -> None:
    """Wait for CUDA to be in use."""
    device = Device(probe)
    probe.on_second(NAME, device.start)
    probe.on_exit(NAME, device.clock.poll)
