"""Sockets that the training thread itself serves: a viewer inside the loop.

Served is what it accepts connections on, and what it accepted.

Only calls made by the user's own code count (through the standard library at most), and only once training
runs: torch, multiprocessing and download libraries talk to sockets for reasons of their own.
"""

from __future__ import annotations

import os
import stat
import sys
from _thread import get_ident
from collections.abc import Iterable
from itertools import chain, islice
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.record.rows import SOCKET

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.sockets"
POLL, RECEIVE, SEND = 1, 2, 3
_METHODS: Final = {
    "recv": RECEIVE, "recv_into": RECEIVE, "recvfrom": RECEIVE, "send": SEND, "sendall": SEND, "sendto": SEND,
}  # fmt: skip
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
#: Batches from another process come through it.
_NOT_A_VIEWER: Final = _STDLIB + "multiprocessing"
#: Of a call that looks at many sockets these are asked what they are; so many are remembered.
_MOST_ASKED: Final = 64
_MOST_KNOWN: Final = 4096

_Token = tuple[int, int]
_NO_ROW: Final = (0, 0)


class Sockets:
    """Writes a row for each call of the training thread that the user's code made."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._inside = False
        self._served: set[int] = set()  # inodes

    def begin_method(self, name: str) -> Any:
        """The ``begin`` for one method of a socket."""
        operation = _METHODS[name]

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token | None:
            return self._begun(operation, frame, (args[0],))

        return begin

    def begin_accept(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token:
        """Before ``accept``, in any thread and at any time: what it gives may be served later."""
        if get_ident() != self._probe.owner:
            return _NO_ROW
        return self._begun(POLL, frame, (args[0],)) or _NO_ROW

    def begin_select(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token | None:
        """Before ``select.select``."""
        watched = chain.from_iterable(one for one in args[:3] if isinstance(one, (list, tuple, set)))
        return self._begun(POLL, frame, watched)

    def end(self, token: _Token, start: int, stop: int, result: Any) -> None:
        """Write the row."""
        self._inside = False
        self._probe.emit(SOCKET, start, stop - start, 0, token[1], token[0])

    def end_accept(self, token: _Token, start: int, stop: int, result: Any) -> None:
        """What was accepted is served from here on."""
        if token is not _NO_ROW:
            self.end(token, start, stop, result)
        if result is not RAISED:
            self._remember(_inode(result[0]))

    def _begun(self, operation: int, frame: FrameType, watched: Iterable[Any]) -> _Token | None:
        if self._inside or not self._probe.training_started:
            return None
        site = self._site(frame)
        if not site or not any(self._serves(one, operation) for one in islice(watched, _MOST_ASKED)):
            return None
        self._inside = True
        return operation, site

    def _serves(self, watched: Any, operation: int) -> bool:
        inode = _inode(watched)
        if not inode or inode in self._served:
            return bool(inode)
        # Nothing is received from, or sent to, what listens.
        found = operation == POLL and _listens(watched)
        if found:
            self._remember(inode)
        return found

    def _remember(self, inode: int) -> None:
        if len(self._served) >= _MOST_KNOWN:
            self._served.clear()
        self._served.add(inode)

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


def _inode(watched: Any) -> int:
    """The number of a socket, by its object or its descriptor; 0 for what is none."""
    try:
        found = os.fstat(watched if isinstance(watched, int) else watched.fileno())
    except (OSError, ValueError, AttributeError):
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def _listens(watched: Any) -> bool:
    """Whether connections are accepted on a socket; one that is watched by its number alone is not asked."""
    module = sys.modules["socket"]
    if not isinstance(watched, module.socket):
        return False
    try:
        return bool(watched.getsockopt(module.SOL_SOCKET, module.SO_ACCEPTCONN))
    except OSError:
        return False


def install(probe: Probe) -> None:
    """Observe socket and select as soon as they are imported."""
    sockets = Sockets(probe)
    hooks = probe.hooks

    def patch_socket(module: Any) -> None:
        for name in _METHODS:
            hooks.around(module.socket, name, NAME, sockets.begin_method(name), sockets.end)
        hooks.around(module.socket, "accept", NAME, sockets.begin_accept, sockets.end_accept, any_thread=True)

    def patch_select(module: Any) -> None:
        hooks.around(module, "select", NAME, sockets.begin_select, sockets.end)

    hooks.on_import("socket", patch_socket, NAME)
    hooks.on_import("select", patch_select, NAME)
