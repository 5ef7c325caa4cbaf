"""Takes the pictures the documentation shows: ``python docs/screenshots.py RUN``. Needs Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).parent / "images"
#: name -> (width, height, dark)
VIEWS = {"report": (1200, 1500, False), "report-dark": (1200, 1500, True), "report-phone": (420, 1400, False)}


def main() -> int:
    """Screenshots of one run's report.html."""
    if len(sys.argv) != 2:
        print("usage: screenshots.py RUN", file=sys.stderr)
        return 2
    page = Path(sys.argv[1]).resolve() / "report.html"
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None or not page.is_file():
        print(f"error: no {'Chromium' if chromium is None else page}", file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    for name, (width, height, dark) in VIEWS.items():
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    chromium,
                    "--headless",
                    "--no-sandbox",
                    "--disable-gpu",
                    "--hide-scrollbars",
                    "--no-first-run",
                    "--disable-background-networking",
                    f"--user-data-dir={profile}",
                    *(["--blink-settings=preferredColorScheme=0"] if dark else []),
                    f"--window-size={width},{height}",
                    f"--screenshot={IMAGES / name}.png",
                    page.as_uri(),
                ],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        print(f"wrote {IMAGES / name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
