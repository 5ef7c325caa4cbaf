"""What ``hotloop watch`` costs: the first look at a long run, the first paint, 64 watchers.

``python benchmarks/watch.py [--steps 1000000] [--seconds 400]`` prints a line for each, and exits with 1
where one is over its limit. A real training goes on under ``hotloop run``. Its page is served for two
minutes (a young run is diagnosed often), then to one reader and to 64, half of ``--seconds`` each: a
diagnosis is due each few minutes. Chromium paints it, where that is found.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Thread

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.monitor.lives import long, training  # noqa: E402
from tests.report.chromium import Chromium, find  # noqa: E402

from hotloop.cli.watch import report_of  # noqa: E402
from hotloop.monitor.snapshot import Watched  # noqa: E402
from hotloop.monitor.web import MOST_WATCHERS  # noqa: E402

#: Seconds in which a run is young: it is diagnosed whenever it has doubled.
_YOUNG_S = 130.0
#: Seconds of a first look, seconds to the first paint, part of the machine in a run that goes on.
LIMITS = {"first look": 1.0, "first paint": 1.0, "part of the machine": 0.005}


def first_look(folder: Path) -> tuple[float, float]:
    """Seconds of the processor for the first look, and for a second one that finds nothing new."""
    watched = Watched(folder, report_of)
    found = []
    for _ in range(2):
        begun = time.thread_time()
        watched.snapshot()
        found.append(time.thread_time() - begun)
    return found[0], found[1]


@contextmanager
def page(folder: Path) -> Iterator[tuple[psutil.Process, str]]:
    """``hotloop watch --web`` of a run: its process and its address."""
    command = [sys.executable, "-m", "hotloop", "watch", str(folder), "--web", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield psutil.Process(process.pid), process.stdout.readline().strip()
        process.terminate()


def first_paint(url: str) -> float:
    """Seconds from the request to the first contentful paint, in Chromium."""
    with Chromium() as browser:
        browser.visit(url, width=1400)
        asked = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        while not (found := browser.run(asked)):
            time.sleep(0.05)
        return float(found) / 1e3


def joined(url: str) -> socket.socket:
    """A watcher: its events are read and dropped."""
    port, path = url.removeprefix("http://127.0.0.1:").split("/", 1)
    one = socket.create_connection(("127.0.0.1", int(port)), timeout=60)
    one.sendall(f"GET /{path}events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    Thread(target=drain, args=(one,), daemon=True).start()
    return one


def drain(one: socket.socket) -> None:
    """Read until it is closed."""
    with suppress(OSError):
        while one.recv(1 << 16):
            pass


def used_s(process: psutil.Process, seconds: float) -> float:
    """Part of one core that a process took for so long."""
    before, begun = process.cpu_times(), time.perf_counter()
    time.sleep(seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / (time.perf_counter() - begun)


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=400.0)
    options = parser.parse_args()
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="hotloop-watch-") as name, ExitStack() as stack:
        folder = long(Path(name) / "long", options.steps)
        found["first look"], again_s = first_look(folder)
        took, steps = found["first look"], f"{options.steps:,} steps"
        print(f"{steps}: first look {took:.2f} s of a core, the next {again_s * 1e3:.1f} ms")
        if find():
            with page(folder) as (_, url):
                found["first paint"] = first_paint(url)
            print(f"{steps}: first paint after {found['first paint']:.2f} s")
        os.environ |= {"TRAIN_SECONDS": f"{_YOUNG_S + 2 * options.seconds}", "TRAIN_SAMPLES": "10000"}
        run = stack.enter_context(training(Path(name), "run"))
        process, url = stack.enter_context(page(run))
        time.sleep(_YOUNG_S)
        for count in (1, MOST_WATCHERS):
            with ExitStack() as watchers:
                for _ in range(count):
                    watchers.enter_context(joined(url))
                part = used_s(process, options.seconds / 2)
            whole = part / (psutil.cpu_count() or 1)
            found["part of the machine"] = max(whole, found.get("part of the machine", 0.0))
            print(f"{count} watchers: {part:.2%} of one core, {whole:.2%} of the machine")
    over = [name for name, value in found.items() if value > LIMITS[name]]
    print(f"over the limit: {', '.join(over)}" if over else "all within their limits")
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
