"""The page of a finding from docs/rules, as markup inside the report, so that it can be read offline."""

from __future__ import annotations

from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from hotloop.findings import pages


def page(finding_id: str) -> Markup:
    """The page about a finding without its title; nothing where there is none."""
    return render(pages.page(finding_id))


def render(markdown: str) -> Markup:
    """Markdown as markup; the title is left out, and a link to a file of the project is its text alone."""
    tokens = _parser().parse(markdown)
    if tokens and tokens[0].tag == "h1":
        tokens = tokens[3:]  # the card carries the title
    for token in tokens:
        token.tag = "h4" if token.tag in ("h2", "h3") else token.tag
        if token.children:
            token.children = _with_outside_links(token.children)
    text = _parser().renderer.render(tokens, _parser().options, {}).strip()
    text = text.replace("<table>", '<div class="scroll"><table>').replace("</table>", "</table></div>")
    return Markup(text)


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _with_outside_links(children: list[Token]) -> list[Token]:
    found: list[Token] = []
    outside: list[bool] = []
    for child in children:
        if child.type == "link_open":
            outside.append(str(child.attrs["href"]).startswith("https://"))
            child.attrs["rel"] = "noreferrer"
        if child.type not in ("link_open", "link_close") or outside[-1]:
            found.append(child)
        if child.type == "link_close":
            outside.pop()
    return found
