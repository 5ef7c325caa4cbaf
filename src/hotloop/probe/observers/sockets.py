"""Sockets that the training thread itself serves or polls: a viewer inside the loop.

Served is what it accepts connections on, and what it accepted; polled is what speaks to another process or
machine and is looked at without waiting. A socket pair of the process's own (an event loop's), a request that
waits for its answer, and a pipe are neither.

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
#: Where the flags of a call stand.
_FLAGS_AT: Final = {"recv": 2, "recvfrom": 2, "recv_into": 3}
_STDLIB: Final = os.path.dirname(os.__file__) + os.sep
#: Batches from another process; what the script asks of another machine, or tells it.
_NOT_A_VIEWER: Final = (_STDLIB + "multiprocessing", os.path.join(_STDLIB, "http", "client.py"))
#: Looks at all its sockets without waiting, at a client's as well.
_EVENT_LOOP: Final = os.path.join(_STDLIB, "asyncio") + os.sep
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
            if self._inside or not self._probe.training_started:
                return None
            polled = operation == RECEIVE and (args[0].gettimeout() == 0 or _returns(name, args, kwargs))
            return self._begun(operation, frame, (args[0],), polled)

        return begin

    def begin_accept(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token:
        """Before ``accept``, in any thread and at any time: what it gives may be served later."""
        if self._inside or not self._probe.training_started or get_ident() != self._probe.owner:
            return _NO_ROW
        return self._begun(POLL, frame, (args[0],), polled=True) or _NO_ROW

    def begin_select(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> _Token | None:
        """Before ``select.select``."""
        if self._inside or not self._probe.training_started:
            return None
        watched = chain.from_iterable(one for one in args[:3] if isinstance(one, (list, tuple, set)))
        return self._begun(POLL, frame, watched, args[3:4] == (0,))

    def begin_selector(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> _Token | None:
        """Before ``select`` of a selector."""
        if self._inside or not self._probe.training_started:
            return None
        timeout = args[1] if len(args) > 1 else kwargs.get("timeout")
        watched = (key.fd for key in list((args[0].get_map() or {}).values()))
        return self._begun(POLL, frame, watched, timeout is not None and timeout <= 0)

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

    def _begun(self, operation: int, frame: FrameType, watched: Iterable[Any], polled: bool) -> _Token | None:
        site, within = self._site(frame)
        if not site:
            return None
        polled = polled and not within
        if not any(self._serves(one, operation, polled) for one in islice(watched, _MOST_ASKED)):
            return None
        self._inside = True
        return operation, site

    def _serves(self, watched: Any, operation: int, polled: bool) -> bool:
        inode = _inode(watched)
        if not inode or inode in self._served:
            return bool(inode)
        # Nothing is received from, or sent to, what listens.
        found = (operation == POLL or polled) and _is_viewers(watched, polled)
        if found:
            self._remember(inode)
        return found

    def _remember(self, inode: int) -> None:
        if len(self._served) >= _MOST_KNOWN:
            self._served.clear()
        self._served.add(inode)

    def _site(self, frame: FrameType | None) -> tuple[int, bool]:
        """The site, if nothing but the standard library lies between the socket and the user's code; whether
        an event loop does.
        """
        user, within = self._probe.is_user, False
        while frame is not None:
            code = frame.f_code
            if user(code):
                return self._probe.site(frame), within
            file = code.co_filename
            if not file.startswith(_STDLIB) or file.startswith(_NOT_A_VIEWER) or "-packages" in file:
                return 0, within
            within = within or file.startswith(_EVENT_LOOP)
            frame = frame.f_back
        return 0, within


def _returns(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call is told by a flag not to wait."""
    flags = kwargs.get("flags", next(iter(args[_FLAGS_AT[name] :]), 0))
    return bool(flags & getattr(sys.modules["socket"], "MSG_DONTWAIT", 0))


def _inode(watched: Any) -> int:
    """The number of a socket, by its object or its descriptor; 0 for what is none."""
    try:
        found = os.fstat(watched if isinstance(watched, int) else watched.fileno())
    except (OSError, ValueError, AttributeError):
        return 0
    return found.st_ino if stat.S_ISSOCK(found.st_mode) else 0


def _is_viewers(watched: Any, polled: bool) -> bool:
    """Whether a socket listens; ``polled``: or speaks to another process or machine."""
    module = sys.modules["socket"]
    if isinstance(watched, module.socket):
        return _looks_like_viewers(module, watched, polled)
    file = watched if isinstance(watched, int) else watched.fileno()
    blocking = os.get_blocking(file)
    seen = module.socket(fileno=file)
    try:
        return _looks_like_viewers(module, seen, polled)
    finally:
        seen.detach()
        os.set_blocking(file, blocking)  # with a default timeout a new socket is made without


def _looks_like_viewers(module: Any, seen: Any, polled: bool) -> bool:
    try:
        if seen.getsockopt(module.SOL_SOCKET, module.SO_ACCEPTCONN):
            return True
        if seen.family == getattr(module, "AF_UNIX", None):  # the two ends of a pair have no names
            return polled and bool(seen.getsockname() or seen.getpeername())
        return polled and seen.family in (module.AF_INET, module.AF_INET6)
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

    def patch_selectors(module: Any) -> None:
        for name in ("SelectSelector", "PollSelector", "EpollSelector"):
            cls = getattr(module, name, None)
            if cls is not None and "select" in vars(cls):
                hooks.around(cls, "select", NAME, sockets.begin_selector, sockets.end)

    hooks.on_import("socket", patch_socket, NAME)
    hooks.on_import("select", patch_select, NAME)
    hooks.on_import("selectors", patch_selectors, NAME)
