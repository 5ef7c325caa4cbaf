"""Source excerpts on the page, with a little colour."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Number, Operator, String

from hotloop.report.words import clean

_CLASSES: Final = ((Comment, "c"), (String, "s"), (Number, "n"), (Keyword, "k"), (Operator.Word, "k"))


def excerpt(around: Mapping[str, Any] | None, line: int) -> Markup:
    """Numbered lines with ``line`` marked; nothing where the source is not known."""
    if not around:
        return Markup()
    first, lines = int(around["first"]), textwrap.dedent("\n".join(around["lines"])).split("\n")
    width = len(str(first + len(lines)))
    rows = [
        Markup('<span class="row{}"><span class="ln" aria-hidden="true">{} </span>{}\n</span>').format(
            " hit" if number == line else "", f"{number:>{width}}", python(source)
        )
        for number, source in enumerate(lines, start=first)
    ]
    return Markup('<pre tabindex="0"><code>{}</code></pre>').format(Markup().join(rows))


def python(line: str) -> Markup:
    """One line of Python with comments, strings, numbers and keywords marked."""
    tokens = PythonLexer(stripnl=False, ensurenl=False).get_tokens(clean(line))
    marked = ((next((mark for kind, mark in _CLASSES if token in kind), ""), text) for token, text in tokens)
    parts = []
    for mark, group in groupby(marked, key=lambda one: one[0]):
        text = "".join(text for _, text in group)
        parts.append(Markup('<span class="{}">{}</span>').format(mark, text) if mark else escape(text))
    return Markup().join(parts)
