"""Takes the pictures of ``hotloop watch``: ``python docs/watch_pictures.py RUN``. Needs Chromium and Textual.

RUN may go on: the pictures show it as it is.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "report")]

from chromium import Chromium  # noqa: E402

from hotloop.cli.watch import report_of  # noqa: E402
from hotloop.monitor.app import Watch  # noqa: E402
from hotloop.monitor.source import states  # noqa: E402
from hotloop.monitor.web import Broadcast, Server  # noqa: E402

IMAGES = Path(__file__).parent / "images"
#: name -> (width, height, dark, mobile)
VIEWS = {"watch": (1400, 900, False, False), "watch-phone": (400, 860, True, True)}


async def screen(run: Path) -> None:
    """The terminal of 80 columns, as SVG."""
    app = Watch(states(run, report_of))
    async with app.run_test(size=(80, 46)) as pilot:
        while "diagnosed" not in str(app.query_one("#page").render()):
            await pilot.pause(0.5)
        (IMAGES / "watch-terminal.svg").write_text(app.export_screenshot(title="hotloop watch"))


def main() -> int:
    """Pictures of the page and of the terminal."""
    if len(sys.argv) != 2:
        print("usage: watch_pictures.py RUN", file=sys.stderr)
        return 2
    run = Path(sys.argv[1])
    asyncio.run(screen(run))
    with Server(Broadcast(states(run, report_of)), 0) as server, Chromium() as browser:
        server.broadcast.start()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, (width, height, dark, mobile) in VIEWS.items():
            browser.visit(server.url, width=width, height=height, dark=dark, mobile=mobile)
            while not browser.run("document.querySelectorAll('#phases li').length"):
                time.sleep(0.5)
            browser.screenshot(IMAGES / f"{name}.png", whole=False)
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
