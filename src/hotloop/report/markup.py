"""Markup that is safe by construction: every text and attribute goes through here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from hotloop.report import words

_VOID = frozenset({"meta", "link", "br", "col"})


class Markup(str):
    """Text that is markup already and is not escaped again."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: Any) -> Markup:
    """An element. ``class_`` is class, ``aria_label`` aria-label; attributes that are None are left out."""
    head = name + "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    return Markup(f"<{head}>") if name in _VOID else Markup(f"<{head}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
    """Children one after the other, plain text escaped."""
    return Markup("".join(child if isinstance(child, Markup) else text(child) for child in children if child))


def text(value: Any) -> Markup:
    """Escaped text without control characters; line breaks stay."""
    lines = str(value).split("\n")
    return Markup("\n".join(html.escape(words.clean(line)) for line in lines))


def section(id_: str, title: str, *children: str | None, note: str | None = None) -> Markup:
    """A titled section of the page; nothing where it has no content."""
    content = join(children)
    if not content:
        return Markup()
    lead = tag("p", note, class_="note") if note else None
    return tag(
        "section", tag("h2", title, id=f"{id_}-title"), lead, content, id=id_, aria_labelledby=f"{id_}-title"
    )


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int] = (), caption: str
) -> Markup:
    """A table that scrolls sideways by itself on a narrow page; ``numeric`` columns are set flush right."""
    cells = [
        tag("tr", *(tag("td", cell, class_="num" if i in numeric else None) for i, cell in enumerate(row)))
        for row in rows
    ]
    if not cells:
        return Markup()
    titles = (
        tag("th", title, scope="col", class_="num" if i in numeric else None) for i, title in enumerate(head)
    )
    body = tag("table", tag("caption", caption), tag("thead", tag("tr", *titles)), tag("tbody", *cells))
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=caption)


def details(summary: str, *children: str | None, open_: bool = False) -> Markup:
    """A part the reader opens when wanted."""
    return tag("details", tag("summary", summary), *children, **({"open": ""} if open_ else {}))


def _attribute(key: str, value: Any) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f' {name}="{html.escape(words.clean(value))}"'
