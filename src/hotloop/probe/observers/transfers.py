"""Copies between host and accelerator, and the calls that make the host wait for it.

Nothing here is patched where torch was built without any accelerator: there is nothing to see.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.observers.autograd import float_bits
from hotloop.record.rows import (
    LOSS,
    SYNC,
    SYNC_OPS,
    TRANSFER,
    TRANSFER_CONVERTS,
    TRANSFER_FLOAT,
    TRANSFER_NON_BLOCKING,
    TRANSFER_PINNED,
    U32_MAX,
)

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.transfers"
TO_DEVICE: Final = 1
TO_HOST: Final = 2
_NON_BLOCKING_AT: Final = {"to": 1, "cuda": 1, "copy_": 1}

# One device-side tensor among operands is all it takes to care; on the host both wrappers end after one question.
_MOVE: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or get_ident() != owner[0] or switch.off:
        return original(self, *args, **kwargs)
    start = now()
    result = original(self, *args, **kwargs)
    if moved(self, result, args):
        record(self, result, args, kwargs, start, now(), getframe(1))
    return result
"""

_SYNC: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling() or self.is_cpu or get_ident() != owner[0] or switch.off:
        return original(self, *args, **kwargs)
    start = now()
    try:
        result = original(self, *args, **kwargs)
        record(self, result, start, now(), getframe(1))
        return result
    except BaseException:
        record(self, None, start, now(), getframe(1))
        raise
"""


class Transfers:
    """Writes TRANSFER and SYNC rows; of calls inside one another only the outermost."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._last_stop = 0
        self._inside = False

    def moved(self, name: str) -> Callable[..., None]:
        """The recorder for one moving method."""
        operation = SYNC_OPS.index(name) if name in SYNC_OPS else SYNC_OPS.index("to")

        def record(
            before: Any, after: Any, args: Any, kwargs: Any, start: int, stop: int, frame: FrameType
        ) -> None:
            source, target = (args[0], before) if name == "copy_" else (before, after)
            if start <= self._last_start:  # ``cpu`` and ``cuda`` go through ``to`` nowhere today; be sure
                return
            self._last_start = start
            probe = self._probe
            site = probe.site(frame)
            flags = transfer_flags(name, source, target, args, kwargs)
            num_bytes = min(source.numel() * source.element_size(), U32_MAX)
            if source.is_cpu or flags & TRANSFER_NON_BLOCKING:
                direction = TO_DEVICE if source.is_cpu else TO_HOST
                probe.emit(TRANSFER, start, stop - start, num_bytes, site, direction, 0, flags)
                return
            # Reading back waits for everything before it: the time is the wait, the bytes are the transfer's.
            probe.emit(TRANSFER, stop, 0, num_bytes, site, TO_HOST, 0, flags)
            probe.emit(SYNC, start, stop - start, 0, site, operation)

        return record

    _last_start = 0

    def waited(self, name: str) -> Callable[..., None]:
        """The recorder for one waiting method."""
        operation = SYNC_OPS.index(name) if name in SYNC_OPS else SYNC_OPS.index("other")

        def record(tensor: Any, result: Any, start: int, stop: int, frame: FrameType) -> None:
            probe = self._probe
            if tensor.device.type == "meta":
                return
            site = probe.site(frame)
            probe.emit(SYNC, start, stop - start, 0, site, operation)
            if isinstance(result, float) and probe.is_loss(tensor):
                probe.emit(LOSS, stop, 0, float_bits(result), site)

        return record


def transfer_flags(name: str, source: Any, target: Any, args: Any, kwargs: Any) -> int:
    """The flags of a TRANSFER row."""
    flags = 0
    if kwargs.get("non_blocking") or _positional_non_blocking(name, args):
        flags |= TRANSFER_NON_BLOCKING
    host = source if source.is_cpu else target
    if not host.is_sparse and host.is_pinned():
        flags |= TRANSFER_PINNED
    if source.dtype != target.dtype:
        flags |= TRANSFER_CONVERTS
    if str(source.dtype) in ("torch.float32", "torch.float64"):
        flags |= TRANSFER_FLOAT
    return flags


def _positional_non_blocking(name: str, args: Any) -> bool:
    """``to(device, dtype, non_blocking)``, ``to(dtype, non_blocking)``, ``cuda(device, non_blocking)``, ``copy_(src, ...)``."""
    return any(value is True for value in args[1 : 3 if name == "to" else 2])


def differs(name: str) -> Callable[[Any, Any, Any], bool]:
    """Whether a call went between host and device; two attribute reads where it did not."""
    if name == "copy_":
        return lambda self, result, args: bool(args) and getattr(args[0], "is_cpu", self.is_cpu) != self.is_cpu
    return lambda self, result, args: result is not self and result.is_cpu != self.is_cpu


def has_accelerator(torch: Any) -> bool:
    """Whether this torch could use one. Asks the build only: asking the driver would touch the device."""
    if os.environ.get("HOTLOOP_ACCELERATOR"):
        return True
    mps = getattr(torch.backends, "mps", None)
    built = torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None)
    return bool(built) or (mps is not None and mps.is_built())


def install(probe: Probe) -> None:
    """Observe transfers and waits."""
    torch, hooks = probe.torch, probe.hooks
    if not has_accelerator(torch):
        return
    transfers = Transfers(probe)
    names: dict[str, Any] = {"owner": hooks.owner, "switch": hooks.switch(NAME), "now": perf_counter_ns}

    def moving(name: str, original: Any) -> Any:
        record = hooks.guard(NAME, transfers.moved(name))
        return compile_beside(original, _MOVE, moved=hooks.guard(NAME, differs(name)), record=record, **names)

    def waiting(name: str, original: Any) -> Any:
        record = hooks.guard(NAME, transfers.waited(name))
        return compile_beside(original, _SYNC, record=record, **names)

    for name in ("to", "cuda", "cpu", "copy_"):
        hooks.patch(torch.Tensor, name, lambda original, name=name: moving(name, original))
    for name in ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "numpy", "nonzero"):
        hooks.patch(torch.Tensor, name, lambda original, name=name: waiting(name, original))
    _install_synchronize(probe)


def _install_synchronize(probe: Probe) -> None:
    operation = SYNC_OPS.index("synchronize")

    def begin(args: Any, kwargs: Any, frame: FrameType) -> int:
        return probe.site(frame)

    def end(site: int, start: int, stop: int, result: Any) -> None:
        probe.emit(SYNC, start, stop - start, 0, site, operation)

    torch = probe.torch
    accelerator = getattr(torch, "accelerator", None)
    cuda = getattr(torch, "cuda", None)
    owners = (cuda, accelerator, getattr(torch, "mps", None), getattr(torch, "xpu", None))
    classes = tuple(getattr(cuda, name, None) for name in ("Event", "Stream"))
    for owner in (*owners, *classes):
        if owner is not None and hasattr(owner, "synchronize"):
            probe.hooks.around(owner, "synchronize", NAME, begin, end)
