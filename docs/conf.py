"""The documentation site, by Sphinx and MyST: `make site`, then build/site/index.html. A warning fails it.

Each release has a folder of its own; what is built later finds those that lie beside it.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
_PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

project = "hotloop"
release = _PROJECT["version"]
extensions = ["myst_parser"]
exclude_patterns = ["README.md"]
myst_heading_anchors = 4
html_theme = "furo"
templates_path = ["_templates"]
html_sidebars = {
    "**": [
        *(f"sidebar/{part}.html" for part in ("brand", "search", "scroll-start", "navigation")),
        "versions.html",
        "sidebar/scroll-end.html",
    ]
}
html_title = f"hotloop {release}"
html_show_sphinx = False
html_show_copyright = False

_REPOSITORY = _PROJECT.get("urls", {}).get("Repository", "https://github.com/hotloop/hotloop")
#: The target of a link or an image that is a path.
_TARGET = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def setup(app: Any) -> None:
    """Sphinx asks for this."""
    app.connect("source-read", _source)
    app.connect("build-finished", _versions)


def _versions(app: Any, error: Exception | None) -> None:
    """Beside the folder of this release: which others there are, and a first page that leads to this one."""
    folder = Path(app.outdir)
    if error is None and folder.name == release:
        names = sorted(path.parent.name for path in folder.parent.glob("*/objects.inv"))
        (folder.parent / "versions.json").write_text(json.dumps(names))
        (folder.parent / "index.html").write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={release}/index.html">'
            "<title>hotloop</title>"
        )


def _source(_: Any, name: str, source: list[str]) -> None:
    """The README is the first page; what stands outside docs/ is linked to where the sources are kept."""
    folder = (DOCS / name).parent
    if name == "index":
        source[0] = _moved((ROOT / "README.md").read_text(), ROOT) + source[0]
    source[0] = _TARGET.sub(lambda found: _target(folder, found), source[0])


def _moved(text: str, folder: Path) -> str:
    """The text of a page in another folder, seen from docs/."""
    return _TARGET.sub(lambda found: os.path.relpath(folder / found[1], DOCS) + (found[2] or ""), text)


def _target(folder: Path, found: re.Match[str]) -> str:
    path = Path(os.path.normpath(folder / found[1]))
    if path.is_relative_to(DOCS) or not path.exists():  # what is not there Sphinx complains about
        return found[0]
    return f"{_REPOSITORY}/blob/main/{path.relative_to(ROOT)}{found[2] or ''}"
