"""Sockets that the training thread itself serves or polls: a viewer inside the loop.

Only calls made by the user's own code count (through the standard library at most), and only once training
runs: torch, multiprocessing and download libraries talk to sockets for reasons of their own.
"""

from __future__ import annotations

import os
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.record.rows import SOCKET

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.sockets"
POLL, RECEIVE, SEND = 1, 2, 3
_METHODS: Final = {
    "accept": POLL, "recv": RECEIVE, "recv_into": RECEIVE, "recvfrom": RECEIVE, "send": SEND, "sendall": SEND,
    "sendto": SEND,
}  # fmt: skip
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
#: Batches from another process; what the script asks of another machine, or tells it.
_NOT_A_VIEWER: Final = (_STDLIB + "multiprocessing", os.path.join(_STDLIB, "http", "client.py"))


class Sockets:
    """Writes a row for each call of the training thread that the user's code made."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._inside = False

    def begin(self, operation: int) -> Any:
        """The ``begin`` for one operation."""

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> tuple[int, int] | None:
            if self._inside or not self._probe.training_started:
                return None
            site = self._site(frame)
            if not site:
                return None
            self._inside = True
            return operation, site

        return begin

    def end(self, token: tuple[int, int], start: int, stop: int, result: Any) -> None:
        """Write the row."""
        self._inside = False
        self._probe.emit(SOCKET, start, stop - start, 0, token[1], token[0])

    def _site(self, frame: FrameType | None) -> int:
        """The site, if nothing but the standard library lies between the socket and the user's code."""
        user = self._probe.is_user
        while frame is not None:
            code = frame.f_code
            if user(code):
                return self._probe.site(frame)
            file = code.co_filename
            if not file.startswith(_STDLIB) or file.startswith(_NOT_A_VIEWER) or "-packages" in file:
                return 0
            frame = frame.f_back
        return 0


def install(probe: Probe) -> None:
    """Observe socket and select as soon as they are imported."""
    sockets = Sockets(probe)
    hooks = probe.hooks

    def patch_socket(module: Any) -> None:
        for name, operation in _METHODS.items():
            hooks.around(module.socket, name, NAME, sockets.begin(operation), sockets.end)

    def patch_select(module: Any) -> None:
        hooks.around(module, "select", NAME, sockets.begin(POLL), sockets.end)

    def patch_selectors(module: Any) -> None:
        for name in ("SelectSelector", "PollSelector", "EpollSelector"):
            cls = getattr(module, name, None)
            if cls is not None and "select" in vars(cls):
                hooks.around(cls, "select", NAME, sockets.begin(POLL), sockets.end)

    hooks.on_import("socket", patch_socket, NAME)
    hooks.on_import("select", patch_select, NAME)
    hooks.on_import("selectors", patch_selectors, NAME)
