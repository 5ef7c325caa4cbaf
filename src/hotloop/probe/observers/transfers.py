"""Copies between host and accelerator, and the calls that make the host wait for it.

Nothing here is patched where torch was built without any accelerator: there is nothing to see.
"""

from __future__ import annotations

import os
from types import FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.observers.autograd import float_bits
from hotloop.probe.probe import Probe
from hotloop.record.rows import (
    LOSS,
    SYNC,
    SYNC_FLOAT,
    SYNC_OPS,
    SYNC_WHOLE,
    TRANSFER,
    TRANSFER_CONVERTS,
    TRANSFER_FLOAT,
    TRANSFER_NON_BLOCKING,
    TRANSFER_PINNED,
)

NAME: Final = "observers.transfers"
#: Set to observe transfers with a torch that was built without an accelerator ("meta": in tests).
ACCELERATOR: Final = "HOTLOOP_ACCELERATOR"
TO_DEVICE: Final = 1
TO_HOST: Final = 2
_WAITING: Final = ("item", "tolist", "__bool__", "__float__", "__int__", "__index__", "numpy", "nonzero")


class Transfers:
    """Writes TRANSFER and SYNC rows."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        # A tensor on "meta" has no data; tests let it stand for a device.
        self._nowhere = "" if os.environ.get(ACCELERATOR) == "meta" else "meta"

    def _number(self, tensor: Any, frame: FrameType) -> int:
        """The flags of a SYNC row: which kind of number the user's own code reads."""
        torch = self._probe.torch
        if tensor.ndim or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return 0
        asks: FrameType | None = frame
        while asks is not None and "__name__" not in asks.f_globals:  # a wrapper of ours
            asks = asks.f_back
        if asks is None or not self._probe.is_user(asks.f_code):
            return 0  # a library's function reads it
        if tensor.is_floating_point():
            return SYNC_FLOAT
        return 0 if tensor.is_complex() or tensor.dtype == torch.bool else SYNC_WHOLE

    def watch_moves(self, name: str) -> None:
        """Observe one moving method."""
        operation = SYNC_OPS.index(name if name in SYNC_OPS else "to")

        def end(token: Any, start: int, stop: int, result: Any) -> None:
            (first, *args), kwargs, frame = token
            source, target = (
                (args[0] if args else kwargs["src"], first) if name == "copy_" else (first, result)
            )
            if result is RAISED or source is target or source.is_cpu == target.is_cpu:
                return
            device = target if source.is_cpu else source
            if device.device.type == self._nowhere:
                return
            probe = self._probe
            site = probe.site(frame)
            flags = transfer_flags(name, source, target, args, kwargs)
            num_bytes = source.numel() * source.element_size()
            if source.is_cpu or flags & TRANSFER_NON_BLOCKING:
                direction = TO_DEVICE if source.is_cpu else TO_HOST
                probe.emit(TRANSFER, start, stop - start, num_bytes, site, direction, 0, flags)
                return
            # Reading back waits for everything before it: the time is the wait's, the bytes the transfer's.
            probe.emit(TRANSFER, stop, 0, num_bytes, site, TO_HOST, 0, flags)
            self._waited(source, start, stop, site, operation, frame)

        self._probe.hooks.around(self._probe.torch.Tensor, name, NAME, lambda *called: called, end)

    def watch_waits(self, name: str) -> None:
        """Observe one waiting method."""
        operation = SYNC_OPS.index(name if name in SYNC_OPS else "other")

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
            return None if args[0].is_cpu else (args[0], frame)

        def end(token: Any, start: int, stop: int, result: Any) -> None:
            tensor, frame = token
            if tensor.device.type == self._nowhere:
                return
            probe = self._probe
            site = probe.site(frame)
            self._waited(tensor, start, stop, site, operation, frame)
            if isinstance(result, float) and probe.is_loss(tensor):
                probe.emit(LOSS, stop, 0, float_bits(result), site)

        self._probe.hooks.around(self._probe.torch.Tensor, name, NAME, begin, end)

    def _waited(
        self, tensor: Any, start: int, stop: int, site: int, operation: int, frame: FrameType
    ) -> None:
        device, number = tensor.get_device() + 1, self._number(tensor, frame)
        self._probe.emit(SYNC, start, stop - start, 0, site, operation, device, number)


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
    """``to(device, dtype, non_blocking)``, ``cuda(device, non_blocking)``, ``copy_(src, non_blocking)``."""
    return any(value is True for value in args[1 : 3 if name == "to" else 2])


def has_accelerator(torch: Any) -> bool:
    """Whether this torch could use one. Asks the build only: asking the driver would touch the device."""
    if os.environ.get(ACCELERATOR):
        return True
    mps = getattr(torch.backends, "mps", None)
    built = torch.version.cuda or torch.version.hip or getattr(torch.version, "xpu", None)
    return bool(built) or (mps is not None and mps.is_built())


def install(probe: Probe) -> None:
    """Observe transfers and waits."""
    if not has_accelerator(probe.torch):
        return
    transfers = Transfers(probe)
    for method in ("to", "cuda", "cpu", "copy_"):
        transfers.watch_moves(method)
    for method in _WAITING:
        transfers.watch_waits(method)
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
