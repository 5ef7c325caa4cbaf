"""Sockets that the training thread itself serves: a viewer inside the loop.

Served is what listens, and what was accepted from it.

Only calls made by the user's own code count (through the standard library at most), and only once training
runs: torch, multiprocessing and download libraries talk to sockets for reasons of their own.
"""

from __future__ import annotations

import os
from _thread import get_ident
from collections.abc import Iterable
from itertools import chain, islice
from types import FrameType
from typing import Any, Final
from weakref import WeakSet

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.probe import Probe
from hotloop.record.rows import SOCKET

NAME: Final = "observers.sockets"
POLL, RECEIVE, SEND = 1, 2, 3
_METHODS: Final = {
    "recv": RECEIVE, "recv_into": RECEIVE, "recvfrom": RECEIVE, "send": SEND, "sendall": SEND, "sendto": SEND,
}  # fmt: skip
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
#: Batches from another process come through it.
_NOT_A_VIEWER: Final = _STDLIB + "multiprocessing"
#: So many are looked at of a call that is given many sockets.
_MOST_ASKED: Final = 64

_Token = tuple[int, int]  # operation, and the site; 0: no row


class Sockets:
    """Writes a row for each call of the training thread that the user's code made."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._served: WeakSet[Any] = WeakSet()

    def begin_method(self, name: str) -> Any:
        """The ``begin`` for one method of a socket."""
        operation = _METHODS[name]

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token | None:
            return self._begun(operation, frame, (args[0],))

        return begin

    def begin_listen(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> None:
        """Before ``listen``, in any thread and at any time."""
        self._served.add(args[0])

    def begin_accept(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token:
        """Before ``accept``, in any thread and at any time: what it gives may be served later."""
        self._served.add(args[0])
        ours = get_ident() == self._probe.owner
        return (self._begun(POLL, frame, (args[0],)) if ours else None) or (POLL, 0)

    def begin_select(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token | None:
        """Before ``select.select``."""
        watched = chain.from_iterable(one for one in args[:3] if isinstance(one, (list, tuple, set)))
        return self._begun(POLL, frame, islice(watched, _MOST_ASKED))

    def end(self, token: _Token, start: int, stop: int, result: Any) -> None:
        """Write the row."""
        operation, site = token
        if site:
            self._probe.emit(SOCKET, start, stop - start, 0, site, operation)

    def end_accept(self, token: _Token, start: int, stop: int, result: Any) -> None:
        """What was accepted is served from here on."""
        self.end(token, start, stop, result)
        if result is not RAISED:
            self._served.add(result[0])

    def _begun(self, operation: int, frame: FrameType, watched: Iterable[Any]) -> _Token | None:
        if not self._probe.training_started or not any(map(self._serves, watched)):
            return None
        site = self._site(frame)
        return (operation, site) if site else None

    def _serves(self, watched: Any) -> bool:
        """Whether it is served; ``select`` may be given numbers."""
        served = list(self._served)
        return any(one is watched for one in served) or (
            type(watched) is int and any(one.fileno() == watched for one in served)
        )

    def _site(self, frame: FrameType | None) -> int:
        """The site, if nothing but the standard library lies between the socket and the user's code."""
        while frame is not None:
            code = frame.f_code
            if self._probe.is_user(code):
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
        for name in _METHODS:
            hooks.around(module.socket, name, NAME, sockets.begin_method(name), sockets.end)
        hooks.around(
            module.socket, "listen", NAME, sockets.begin_listen, sockets.end, any_thread=True, unseen=True
        )
        hooks.around(module.socket, "accept", NAME, sockets.begin_accept, sockets.end_accept, any_thread=True)

    def patch_select(module: Any) -> None:
        hooks.around(module, "select", NAME, sockets.begin_select, sockets.end)

    hooks.on_import("socket", patch_socket, NAME)
    hooks.on_import("select", patch_select, NAME)
