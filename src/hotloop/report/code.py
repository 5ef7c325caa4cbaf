"""Source excerpts and the pages of findings, as markup inside a page that is read offline."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from markdown_it import MarkdownIt
from markupsafe import Markup, escape
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Number, Operator, String

from hotloop.findings import pages
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


def page(finding_id: str) -> Markup:
    """The page about a finding without its title; nothing where there is none."""
    tokens = _parser().parse(pages.page(finding_id))
    if tokens and tokens[0].tag == "h1":
        tokens = tokens[3:]  # the card carries the title
    for token in tokens:
        token.tag = "h4" if token.tag in ("h2", "h3") else token.tag
    text = _parser().renderer.render(tokens, _parser().options, {}).strip()
    text = text.replace("<a href=", '<a rel="noreferrer" href=')
    text = text.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return Markup(text)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")
