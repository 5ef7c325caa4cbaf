"""The page of a finding from docs/rules, as markup inside the report, so that it can be read offline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hotloop.report.markup import Markup, tag, text

_PACKAGE: Final = Path(__file__).resolve().parents[1]
#: In an installed package, and in a source tree.
_FOLDERS: Final = (_PACKAGE / "docs" / "rules", _PACKAGE.parents[1] / "docs" / "rules")
_INLINE: Final = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)]+)\)")
_ITEM: Final = re.compile(r"\s*(?:[-*]|\d+\.)\s+(.*)")


def page(finding_id: str) -> Markup:
    """The page about a finding without its title; nothing where there is none."""
    for folder in _FOLDERS:
        for name in (finding_id, finding_id.replace("-", "_")):
            file = folder / f"{name}.md"
            if file.is_file():
                return render(file.read_text(encoding="utf-8"))
    return Markup()


def render(markdown: str) -> Markup:
    """The subset of Markdown the pages use: headings, paragraphs, lists, tables, code, bold, links."""
    return Markup("".join(_block(block) for block in _blocks(markdown)))


def _blocks(markdown: str) -> Iterator[list[str]]:
    block: list[str] = []
    fenced = False
    for line in markdown.splitlines():
        if line.startswith("```"):
            if not fenced and block:
                yield block
                block = []
            block.append(line)
            if fenced:
                yield block
                block = []
            fenced = not fenced
        elif fenced:
            block.append(line)
        elif not line.strip() or line.startswith("#") or (block and block[0].startswith("#")):
            if block:
                yield block
            block = [line] if line.strip() else []
        else:
            block.append(line)
    if block:
        yield block


def _block(lines: list[str]) -> Markup:
    first = lines[0]
    if first.startswith("```"):
        return tag("pre", tag("code", "\n".join(line for line in lines[1:] if line != "```")), tabindex="0")
    if first.startswith("# "):
        return Markup()  # the card carries the title
    if first.startswith("#"):
        return tag("h4", inline(first.lstrip("# ")))
    if first.startswith("|"):
        return _table(lines)
    if _ITEM.match(first):
        return tag("ul", *(tag("li", inline(item)) for item in _items(lines)))
    return tag("p", inline(" ".join(line.strip() for line in lines)))


def _items(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        match = _ITEM.match(line)
        if match:
            items.append(match.group(1))
        else:
            items[-1] += " " + line.strip()
    return items


def _table(lines: list[str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    body = [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    head = tag("tr", *(tag("th", inline(cell), scope="col") for cell in rows[0]))
    cells = (tag("tr", *(tag("td", inline(cell)) for cell in row)) for row in body)
    return tag("div", tag("table", tag("thead", head), tag("tbody", *cells)), class_="scroll")


def inline(line: str) -> Markup:
    """Code, bold and links of one line; a link to a file of the project is its text alone."""
    parts, at = [], 0
    for match in _INLINE.finditer(line):
        code, bold, label, target = match.groups()
        parts.append(text(line[at : match.start()]))
        if code is not None:
            parts.append(tag("code", code))
        elif bold is not None:
            parts.append(tag("strong", inline(bold)))
        elif target.startswith("https://"):
            parts.append(tag("a", inline(label), href=target, rel="noreferrer"))
        else:
            parts.append(inline(label))
        at = match.end()
    return Markup("".join([*parts, text(line[at:])]))
