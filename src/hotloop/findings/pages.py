"""The page of a finding in docs/rules, as it lies in an installed package or in a source tree."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_FOLDERS: Final = (_PACKAGE / "docs" / "rules", _PACKAGE.parents[1] / "docs" / "rules")
#: A link to another page of the project, which does not lie beside a report.
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https://)[^)]+\.md[^)]*\)")
_SECTION: Final = re.compile(r"^## What to do\n(.*?)(?=^## |\Z)", re.M | re.S)


@lru_cache(maxsize=256)
def page(finding_id: str) -> str:
    """The page in Markdown, links to other pages as their text alone; empty where there is none."""
    found = (folder / f"{finding_id}.md" for folder in _FOLDERS)
    text = next((file.read_text(encoding="utf-8") for file in found if file.is_file()), "")
    return _LINK.sub(r"\1", text)


def what_to_do(finding_id: str) -> str:
    """The page's section of that name in Markdown; empty for none."""
    section = _SECTION.search(page(finding_id))
    return section[1].strip() if section else ""
