"""One page on this machine that follows a run by server-sent events; it only shows.

The page has no words of the run in it. What it gets is data, which its script puts into the text of elements.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from hotloop.errors import UsageError, told
from hotloop.foreign import clean
from hotloop.monitor.snapshot import SHARE
from hotloop.report import html

MOST_WATCHERS: Final = 64
_ASSETS: Final = Path(__file__).with_name("assets")
_LOOPBACK: Final = "127.0.0.1"
_BEAT_S: Final = 15.0
_SEND_S: Final = 30.0


class Broadcast:
    """The newest state of a source, made once for all who listen."""

    def __init__(self, source: Iterator[dict[str, Any]]) -> None:
        self._source = source
        self._changed = threading.Condition()
        self._event = b""
        self._number = 0
        self._spent_s = 0.0
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def start(self) -> None:
        """Follow the source in a thread."""
        self._thread.start()

    def after(self, number: int, timeout_s: float) -> tuple[int, bytes]:
        """The newest event and its number, as soon as that is larger, or as it is after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: self._number > number, timeout_s)
            return self._number, self._event

    def sent(self, spent_s: float) -> None:
        """A watcher got its event, which took so much of a core."""
        with self._changed:
            self._spent_s += spent_s

    def _follow(self) -> None:
        try:
            for state in self._source:
                begun_s = time.thread_time()
                self._tell(state)
                self.sent(time.thread_time() - begun_s)  # making it is dearer than sending it to a few
                wait_s, self._spent_s = min(_BEAT_S, self._spent_s / SHARE), 0.0
                time.sleep(wait_s)  # many watchers get fewer states
        except Exception as error:  # whoever looks is told
            self._tell({"error": clean(told(error))})

    def _tell(self, state: dict[str, Any]) -> None:
        text = json.dumps(state, ensure_ascii=True, separators=(",", ":"))
        with self._changed:
            self._number += 1
            self._event = f"id: {self._number}\ndata: {text}\n\n".encode()
            self._changed.notify_all()


class Server(ThreadingHTTPServer):
    """Serves the page and its events under ``url``, on the loopback interface. Raises UsageError."""

    daemon_threads = True
    request_queue_size = MOST_WATCHERS

    def __init__(self, broadcast: Broadcast, port: int) -> None:
        self.broadcast = broadcast
        self.places = threading.BoundedSemaphore(MOST_WATCHERS)
        try:
            super().__init__((_LOOPBACK, port), _Handler)
        except OSError as error:
            raise UsageError(
                f"port {port} cannot be used: {error.strerror}",
                hint="give another one, or 0 for any that is free",
            ) from error
        self.paths = {
            kind: f"/{token}/{kind}" for token in [secrets.token_urlsafe(24)] for kind in ("", "events")
        }
        self.hosts = {f"{name}:{self.server_port}" for name in (_LOOPBACK, "localhost")}

    @property
    def url(self) -> str:
        """Where the page is; whoever knows it may look."""
        return f"http://{_LOOPBACK}:{self.server_port}{self.paths['']}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A watcher that goes away is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    timeout = _SEND_S
    server_version, sys_version = "hotloop", ""

    def do_GET(self) -> None:
        """The page, or its events; nothing else is there, whatever is asked for."""
        if self.headers.get("Host") not in self.server.hosts:  # a name that somebody had resolved to here
            return self._refuse(HTTPStatus.MISDIRECTED_REQUEST)
        if self._is("events"):
            return self._events()
        if self._is(""):
            return self._page()
        return self._refuse(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        """The terminal is for the user."""

    def _is(self, kind: str) -> bool:
        return hmac.compare_digest(self.path.encode("utf-8", "replace"), self.server.paths[kind].encode())

    def _refuse(self, status: HTTPStatus) -> None:
        self.close_connection = True
        self._begin(status, "text/plain; charset=utf-8", len(status.phrase))
        self.wfile.write(status.phrase.encode())

    def _begin(self, status: HTTPStatus, kind: str, length: int | None, **more: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            **({"Content-Length": str(length)} if length is not None else {"Connection": "close"}),
            **more,
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _page(self) -> None:
        page, policy = page_and_policy()
        self._begin(
            HTTPStatus.OK, "text/html; charset=utf-8", len(page), **{"Content-Security-Policy": policy}
        )
        self.wfile.write(page)

    def _events(self) -> None:
        self.close_connection = True
        if not self.server.places.acquire(blocking=False):
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            self._begin(HTTPStatus.OK, "text/event-stream", None)
            number = 0
            while True:
                begun_s = time.thread_time()
                newest, event = self.server.broadcast.after(number, _BEAT_S)
                self.wfile.write(event if newest > number else b": still here\n\n")
                self.server.broadcast.sent(time.thread_time() - begun_s)
                number = newest
        except OSError:  # it went away, or takes nothing any more
            pass
        finally:
            self.server.places.release()
        return None


@cache
def page_and_policy() -> tuple[bytes, str]:
    """The page, and the Content-Security-Policy that lets its own script and style run and no other."""
    style = html.style() + (_ASSETS / "watch.css").read_text(encoding="utf-8")
    script = html.script("plots") + (_ASSETS / "watch.js").read_text(encoding="utf-8")
    text = (_ASSETS / "page.html").read_text(encoding="utf-8")
    page = text.replace("/*style*/", style).replace("/*script*/", script)
    allowed = {
        "style-src": _hash(style),
        "script-src": _hash(script),
        "connect-src": "'self'",
        "img-src": "data:",
    }
    none = dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    policy = "; ".join(f"{name} {value}" for name, value in (none | allowed).items())
    return page.encode(), policy


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def serve(source: Iterator[dict[str, Any]], port: int, say: Callable[[str], None]) -> None:
    """Serve the states of a source until Ctrl-C; ``say`` is told where. Raises HotloopError."""
    first = list(islice(source, 1))  # where there is no run, there is no page
    broadcast = Broadcast(chain(first, source))
    with Server(broadcast, port) as server:
        broadcast.start()
        say(server.url)
        server.serve_forever(poll_interval=0.5)
