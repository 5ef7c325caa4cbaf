"""Slots the device can copy from by itself: page-locked with ``cudaHostRegister``. Not yet run on a GPU."""

from __future__ import annotations

import os
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

    def __del__(self) -> None:
        if self.is_pinned and self._owner == os.getpid():
            self.is_pinned = False
            torch.cuda.current_stream().synchronize()  # a copy may still be reading
            torch.cuda.cudart().cudaHostUnregister(self.address)
        super().__del__()


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
    return device == "cuda" and torch.cuda.is_available()
