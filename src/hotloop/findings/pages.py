"""The pages of docs/, as they lie in an installed package or in a source tree."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parents[1]
_FOLDERS: Final = (_PACKAGE / "docs", _PACKAGE.parents[1] / "docs")
#: The folders that travel; a page is named by its path below the first that holds it.
_SHELVES: Final = ("guides", "rules", "reference")
#: A link to another page of the project, which does not lie beside a report.
_LINK: Final = re.compile(r"\[([^\]]+)\]\((?!https://)[^)]+\.md[^)]*\)")
_SECTION: Final = r"^## {}\n(.*?)(?=^## |\Z)"
_PART: Final = re.compile(r"^(?=### )", re.M)
#: Below the heading of a part: the code that it is for.
_FOR: Final = re.compile(r"^<!-- code: (.+) -->\n", re.M)


@lru_cache(maxsize=256)
def page(finding_id: str) -> str:
    """A finding's page in Markdown, links to other pages as their text alone; empty where there is none."""
    return _FOR.sub("", _LINK.sub(r"\1", named(finding_id)))


def what_to_do(finding_id: str, code: str = "") -> str:
    """The page's section of that name in Markdown, its parts for other code left out, those for the code
    before what is for any; empty for none.
    """
    first, *parts = _PART.split(_section(finding_id, "What to do"))
    fit = [part for part in parts if (wanted := _FOR.search(part)) is None or re.search(wanted[1], code)]
    told = [*fit, f"### In general\n{first}"] if fit else [first]
    if len(fit) < len(parts):
        told.append(f"`hotloop docs {finding_id}` has {len(parts) - len(fit)} more, for other code.")
    return _FOR.sub("", "".join(told)).strip()


def when_it_is_wrong(finding_id: str) -> str:
    """The page's section of that name in Markdown; empty for none."""
    return _section(finding_id, "When it is wrong").strip()


def _section(finding_id: str, title: str) -> str:
    found = re.search(_SECTION.format(title), _LINK.sub(r"\1", named(finding_id)), re.M | re.S)
    return found[1] if found else ""


def titles() -> dict[str, str]:
    """Name and title of every page, of a finding its first line: guides, findings, reference."""
    found: dict[str, str] = {}
    for name, file in _pages().items():
        title, _, text = file.read_text(encoding="utf-8").partition("\n")
        sentence = " ".join(text.strip().partition("\n\n")[0].split()).partition(". ")[0]
        found[name] = sentence.removesuffix(".") if title.strip("#` ") == name else title.lstrip("# ")
    return found


def named(name: str) -> str:
    """The page of this name in Markdown; empty where there is none."""
    wanted = name.removesuffix(".md").removeprefix("docs/").removeprefix("guides/").removeprefix("rules/")
    file = _pages().get(wanted) or _pages().get(f"reference/{wanted}")
    return file.read_text(encoding="utf-8") if file else ""


def _pages() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for shelf in _SHELVES:
        folder = next((folder / shelf for folder in _FOLDERS if (folder / shelf).is_dir()), None)
        for file in sorted(folder.rglob("*.md")) if folder else ():
            name = file.relative_to(folder).with_suffix("").as_posix() if folder else ""
            found[name if shelf != "reference" else f"reference/{name}"] = file
    found.pop("README", None)
    return found
