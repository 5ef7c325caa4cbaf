"""Every loss of a run: read where it lies, or on CUDA copied on the device and read later.

A LOSS row's ``value`` is the float32; ``extra`` a checksum of the exact bytes, so that losses of any dtype
can be told equal bit for bit.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from zlib import crc32

from hotloop.probe.evidence.fingerprint import memory
from hotloop.probe.observers.autograd import float_bits
from hotloop.probe.probe import Probe
from hotloop.record.rows import LOSS

#: Losses that may be under way; more than the device is ever behind.
_MOST: Final = 512

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
    """Copies losses into pinned memory, and reads what has arrived.

    Nothing is waited for; where the device is further behind than ``_MOST``, losses go unread.
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
        self._arriving = torch.empty(_MOST, dtype=torch.float32, device="cpu", pin_memory=pinned)
        self._events: list[Any] = []
        self._free: list[int] = []
        self._under_way: deque[tuple[int, int, int]] = deque()  # time, site, place in both

    def take(self, loss: Any, now: int, site: int) -> None:
        """Send one loss on its way."""
        if self._capturing():
            return  # what a graph records is run again and again
        self._collect()
        if not self._free:
            if len(self._events) == _MOST:
                return
            self._free.append(len(self._events))
            self._events.append(self._new_event())
        at = self._free.pop()
        with self._torch.no_grad():
            self._arriving[at].copy_(loss.detach().reshape(()), non_blocking=True)
        self._events[at].record()
        self._under_way.append((now, site, at))

    def finish(self) -> None:
        """Wait for all that is under way, and write it."""
        for *_, at in self._under_way:
            self._events[at].synchronize()
        self._collect()

    def _collect(self) -> None:
        while self._under_way and self._events[self._under_way[0][2]].query():
            now, site, at = self._under_way.popleft()
            raw = bytes(memory(self._arriving.data_ptr() + 4 * at, 4))
            self._emit(LOSS, now, 0, int.from_bytes(raw, "little"), site, 0, crc32(raw) & 0xFFFF)
            self._free.append(at)


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
