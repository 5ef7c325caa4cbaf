"""Backward passes, and the loss values they start from."""

from __future__ import annotations

import struct
from _thread import get_ident
from types import FrameType
from typing import TYPE_CHECKING, Any

from hotloop.record.rows import BACKWARD, LOSS

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME = "observers.autograd"
IN_BACKWARD = 2


class Backward:
    """Observes ``torch.autograd.backward`` and ``grad``; the outermost call of each."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._tensor = probe.torch.Tensor
        self._item = probe.torch._C.TensorBase.item

    def begin(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        """Note where it is called; a backward inside a backward (checkpointing) belongs to the outer one."""
        probe = self._probe
        inside = probe.inside
        if get_ident() != probe.hooks.owner[0] and not probe.claim():
            return None
        before = inside[0]
        if before == IN_BACKWARD:
            return None
        inside[0] = IN_BACKWARD
        return before, probe.site(frame), args[0] if args else kwargs.get("tensors")

    def end(self, token: Any, start: int, stop: int, result: Any) -> None:
        """Write the row, and the loss where it lies in host memory."""
        probe = self._probe
        before, site, tensors = token
        probe.inside[0] = before
        probe.emit(BACKWARD, start, stop - start, 0, site)
        probe.went_backward()
        if isinstance(tensors, (list, tuple)) and len(tensors) == 1:
            tensors = tensors[0]
        if type(tensors) is self._tensor:
            self._loss(tensors, stop, site)

    def _loss(self, loss: Any, stop: int, site: int) -> None:
        if not loss.is_cpu:
            self._probe.note_loss(loss)
        elif loss.numel() == 1 and not self._probe.is_scaled(loss):
            try:
                value = self._item(loss)
            except RuntimeError:  # a tensor without data: meta, or inside a functorch transform
                return
            if isinstance(value, float):
                self._probe.emit(LOSS, stop, 0, float_bits(value), site)


def float_bits(value: float) -> int:
    """The bits of the nearest float32; a value out of its range becomes infinite."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def install(probe: Probe) -> None:
    """Observe this process's backward passes."""
    torch = probe.torch
    backward = Backward(probe)
    for name in ("backward", "grad"):
        probe.hooks.around(torch.autograd, name, NAME, backward.begin, backward.end, any_thread=True)

    def checkpointed(args: Any, kwargs: Any, frame: FrameType) -> None:
        probe.facts["checkpointing"] = True

    probe.hooks.on_import(
        "torch.utils.checkpoint",
        lambda module: probe.hooks.around(module, "checkpoint", NAME, checkpointed, lambda *_: None),
        NAME,
    )
