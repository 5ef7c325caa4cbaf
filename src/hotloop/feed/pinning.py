"""Slots the device can copy from by itself: page-locked with ``cudaHostRegister``."""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from hotloop.feed.memory import Mapping


class PinnedMapping(Mapping):
    """A window whose pages are locked for CUDA: tensors on it are ``is_pinned()``, copies need not wait.

    Where CUDA refuses (``RLIMIT_MEMLOCK``, no more pages), ``is_pinned`` stays false and the window is plain.
    """

    is_pinned = False

    def __init__(self, descriptor: int, num_bytes: int, *, offset: int = 0, writable: bool = True) -> None:
        super().__init__(descriptor, num_bytes, offset=offset, writable=writable)
        self._owner = os.getpid()
        self.is_pinned = int(torch.cuda.cudart().cudaHostRegister(self.address, num_bytes, 0)) == 0
        if not self.is_pinned:
            _forget_error()

    def __del__(self) -> None:
        if self.is_pinned and self._owner == os.getpid() and not sys.is_finalizing():
            self.is_pinned = False
            torch.cuda.synchronize()  # a copy may still be reading; windows are replaced rarely
            torch.cuda.cudart().cudaHostUnregister(self.address)
        super().__del__()


def _forget_error() -> None:
    """CUDA remembers what it refused until somebody asks: let it not be blamed on the next kernel."""
    try:
        torch.zeros(1, device="cuda")
    except RuntimeError:
        pass


def last_copy() -> Any:
    """An event that passes when the current stream's copies so far are done.

    The stream is the one that is current where a batch's last reference goes. Whoever copies on another
    stream holds the batch until its copy is done (``DevicePrefetcher`` does).
    """
    event = torch.cuda.Event()
    event.record()
    return event


def can_pin(device: str | None) -> bool:
    """Whether slots can be pinned for the accelerator in use; others get torch's own pinned copies."""
    return device in ("cuda", None) and torch.cuda.is_available()
