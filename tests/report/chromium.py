"""A real Chromium driven over its debugging pipe with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest


def find() -> str | None:
    """The browser's executable, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next((path for path in map(shutil.which, names) if path), None)


def in_chromium(test: Any) -> Any:
    """A test in a browser, left out where there is none."""
    return pytest.mark.browser(pytest.mark.skipif(find() is None, reason="no Chromium here")(test))


class Chromium:
    """One headless browser with one page. ``events`` holds everything the page reported."""

    def __init__(self) -> None:
        executable = find()
        assert executable, "no Chromium here"
        self.events: list[dict[str, Any]] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # Chromium reads commands from descriptor 3 and answers on 4; a shell puts them there.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        flags = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={self._profile.name}",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", script, executable, *flags, "about:blank"],
            pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(from_write)
        self._out, self._in = to_write, os.fdopen(from_read, "rb")
        self._buffer = b""
        self._next = 0
        self._session: str | None = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        try:
            self.call("Browser.close")
        finally:
            os.close(self._out)
            self._in.close()
            self._process.wait(20)
            self._profile.cleanup()

    def open(self, path: Path, **view: Any) -> None:
        """Load a file and wait until it has loaded."""
        self.visit(path.resolve().as_uri(), **view)

    def visit(
        self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, mobile: bool = False
    ) -> None:
        """Load an address and wait until it has loaded."""
        self.events.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._read()

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key, where the focus is."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def move_mouse(self, x: float, y: float) -> None:
        """A real pointer movement to a point of the viewport."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole, format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def problems(self) -> list[str]:
        """Exceptions, console errors and browser log entries since the page was opened."""
        found = []
        for event in self.events:
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(params["exceptionDetails"]))
            elif event["method"] == "Runtime.consoleAPICalled":
                if params["type"] in ("error", "warning", "assert"):
                    found.append(json.dumps(params["args"]))
            elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """Every address asked for since the page was opened."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its answer."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._read()
            if answer.get("id") == self._next:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._in.fileno(), 1 << 16)
            assert piece, "Chromium went away"
            self._buffer += piece
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self.events.append(message)
        return message
