"""The page of a finding from docs/rules, as markup inside the report, so that it can be read offline."""

from __future__ import annotations

from functools import lru_cache

from markdown_it import MarkdownIt
from markupsafe import Markup

from hotloop.findings import pages


def page(finding_id: str) -> Markup:
    """The page about a finding without its title; nothing where there is none."""
    return render(pages.page(finding_id))


def render(markdown: str) -> Markup:
    """Markdown as markup without its title."""
    tokens = _parser().parse(markdown)
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
