"""Source excerpts on the page, with a little colour."""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Mapping
from typing import Any, Final

from hotloop.report.markup import Markup, tag, text

_TOKEN: Final = re.compile(
    r"(?P<comment>#.*$)"
    r"|(?P<string>[rbfuRBFU]{0,2}(?:\"\"\".*?(?:\"\"\"|$)|'''.*?(?:'''|$)|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'))"
    r"|(?P<number>\b\d[\w.]*)"
    r"|(?P<word>\b[^\W\d]\w*)"
)
_CLASSES: Final = {"comment": "c", "string": "s", "number": "n"}


def excerpt(around: Mapping[str, Any] | None, line: int) -> Markup:
    """Numbered lines with ``line`` marked; nothing where the source is not known."""
    if not around:
        return Markup()
    rows = []
    first, lines = int(around["first"]), textwrap.dedent("\n".join(around["lines"])).split("\n")
    width = len(str(first + len(lines)))
    for number, source in enumerate(lines, start=first):
        mark = "hit" if number == line else None
        gutter = tag("span", f"{number:>{width}} ", class_="ln", aria_hidden="true")
        rows.append(tag("span", gutter, python(source), "\n", class_=f"row {mark}" if mark else "row"))
    return tag("pre", tag("code", *rows), tabindex="0")


def python(line: str) -> Markup:
    """One line of Python with comments, strings, numbers and keywords marked."""
    parts, at = [], 0
    for match in _TOKEN.finditer(line):
        kind = _CLASSES.get(str(match.lastgroup))
        if match.lastgroup == "word" and keyword.iskeyword(match.group()):
            kind = "k"
        if kind is None:
            continue
        parts += [text(line[at : match.start()]), tag("span", match.group(), class_=kind)]
        at = match.end()
    return Markup("".join([*parts, text(line[at:])]))
