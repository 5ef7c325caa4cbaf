"""Every loss of a run: read where it lies, or on CUDA copied on the device and read later.

A LOSS row's ``value`` is the float32; ``extra`` a checksum of the exact bytes, so that losses of any dtype
can be told equal bit for bit.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from hotloop.probe.evidence.fingerprint import memory
from hotloop.probe.observers.autograd import float_bits
from hotloop.record.rows import LOSS

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Losses that wait on the device for one copy to the host.
_WAITING: Final = 64
#: Buffers of them that may be under way; more than the device is ever behind.
_MAX_BUFFERS: Final = 8

_FORMATS: Final = {"torch.float32": "<f", "torch.float64": "<d", "torch.float16": "<e", "torch.bfloat16": ""}


class Losses:
    """Reads the losses backward begins with; of scaled ones, what they were before the scaler."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._emit = probe.emit
        self._tensor = probe.torch.Tensor
        self._device: OnDevice | None = None

    def backward(self, found: Any, stop: int, site: int) -> None:
        """A backward ended that began with this loss, or with these."""
        for loss in found if isinstance(found, (list, tuple)) else (found,):
            if not self._probe.is_scaled(loss):
                self.read(loss, stop, site)

    def read(self, loss: Any, now: int, site: int = 0) -> None:
        """Write the row of one loss, or have it read later."""
        if type(loss) is not self._tensor or loss.numel() != 1:
            return
        if loss.is_cpu:
            bits = bits_of(loss)
            if bits is not None:
                self._emit(LOSS, now, 0, bits[0], site, 0, bits[1])
        elif loss.is_cuda:
            if self._device is None:
                self._device = OnDevice(self._probe.torch, self._emit)
            self._device.take(loss, now, site)
        else:
            self._probe.note_loss(loss)  # seen where the script reads it

    def finish(self) -> None:
        """The run is over: now it may be waited for the device."""
        if self._device is not None:
            self._device.finish()

    def restart(self) -> None:
        """In a forked child: the device is the parent's."""
        self._device = None


class OnDevice:
    """Copies losses into a buffer on the device, full buffers into pinned memory, and reads what has arrived.

    Nothing is waited for; where the device is further behind than all buffers, losses go unread.
    """

    def __init__(
        self,
        torch: Any,
        emit: Callable[..., None],
        *,
        new_event: Callable[[], Any] | None = None,
        capturing: Callable[[], bool] | None = None,
        pinned: bool = True,
    ) -> None:
        self._torch = torch
        self._emit = emit
        self._new_event = new_event or torch.cuda.Event
        self._capturing = capturing or torch.cuda.is_current_stream_capturing
        self._pinned = pinned
        self._free: list[tuple[Any, Any]] = []
        self._made = 0
        self._filling: tuple[Any, Any] | None = None
        self._marks: list[tuple[int, int]] = []
        self._under_way: deque[tuple[Any, list[tuple[int, int]], tuple[Any, Any]]] = deque()

    def take(self, loss: Any, now: int, site: int) -> None:
        """Copy one loss beside the others; a full buffer goes on its way."""
        if self._capturing():
            return  # what a graph records is run again and again
        if self._filling is None:
            self._collect()
            self._filling = self._buffer(loss.device)
            if self._filling is None:
                return
        with self._torch.no_grad():
            self._filling[0][len(self._marks)].copy_(loss.detach().reshape(()), non_blocking=True)
        self._marks.append((now, site))
        if len(self._marks) == _WAITING:
            self._send()

    def finish(self) -> None:
        """Wait for all that is under way, and write it."""
        if self._filling is not None and self._marks:
            self._send()
        for event, _, _ in self._under_way:
            event.synchronize()
        self._collect()

    def _buffer(self, device: Any) -> tuple[Any, Any] | None:
        if self._free:
            return self._free.pop()
        if self._made >= _MAX_BUFFERS:
            return None
        self._made += 1
        kind = self._torch.float32
        return (
            self._torch.empty(_WAITING, dtype=kind, device=device),
            self._torch.empty(_WAITING, dtype=kind, pin_memory=self._pinned),
        )

    def _send(self) -> None:
        assert self._filling is not None
        with self._torch.no_grad():
            self._filling[1].copy_(self._filling[0], non_blocking=True)
        event = self._new_event()
        event.record()
        self._under_way.append((event, self._marks, self._filling))
        self._filling, self._marks = None, []

    def _collect(self) -> None:
        while self._under_way and self._under_way[0][0].query():
            _, marks, buffer = self._under_way.popleft()
            data = memory(buffer[1].data_ptr(), 4 * len(marks))
            for at, (now, site) in enumerate(marks):
                raw = data[4 * at : 4 * at + 4]
                self._emit(LOSS, now, 0, int.from_bytes(raw, "little"), site, 0, crc32(raw) & 0xFFFF)
            self._free.append(buffer)


def bits_of(loss: Any) -> tuple[int, int] | None:
    """(float32 bits, checksum of the exact bytes) of a one-element host tensor of floats."""
    kind = _FORMATS.get(str(loss.dtype))
    if kind is None:
        return None
    try:
        address = loss.data_ptr()
    except RuntimeError:  # a wrapped tensor of torch.func holds no data of its own
        return None
    if not address:
        return None
    raw = bytes(memory(address, loss.element_size()))
    if kind == "<f":
        bits = int.from_bytes(raw, "little")
    elif not kind:  # bfloat16 is the upper half of a float32
        bits = int.from_bytes(raw, "little") << 16
    else:
        bits = float_bits(struct.unpack(kind, raw)[0])
    return bits, crc32(raw) & 0xFFFF
