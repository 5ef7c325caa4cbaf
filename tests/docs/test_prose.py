"""Pages that users read are plain: short sentences, lines that fit, the field's words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for place in ("*.md", "docs/*.md", "docs/guides/*.md", "docs/rules/**/*.md")
    for path in ROOT.glob(place)
)
WORDS, COLUMNS = 30, 120
#: Words of our own, and the ones to write instead.
AVOID = {
    "as found": "unmodified", "in force": "enabled", "is told": "is reported", "are told": "are reported",
    "told apart": "distinguished", "says nothing": "is silent", "dear": "expensive", "anew": "again",
}  # fmt: skip

#: Pages that are still to be rewritten; nothing is added here.
PENDING = frozenset([])


def prose(text: str) -> str:
    """What is left of a page without code, tables, images, links' targets and comments."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("|", "#", "!")))
    return re.sub(r"\]\([^)]*\)", "]", text)


def sentences(text: str) -> list[str]:
    """Sentences, items of lists and paragraphs of a page."""
    pieces = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s+|(?<=[.!?:;])\s+", prose(text))
    return [" ".join(piece.split()) for piece in pieces if piece.strip()]


def faults(path: Path) -> list[str]:
    text = path.read_text()
    code = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    wide = [
        line
        for line in code.splitlines()
        if len(line) > COLUMNS and not line.lstrip().startswith(("|", "!", "["))
    ]
    words = [
        f"«{word}»: write «{other}»"
        for word, other in AVOID.items()
        if re.search(rf"\b{word}\b", prose(text))
    ]
    long = [one for one in sentences(text) if len(re.sub(r"`[^`]*`", "code", one).split()) > WORDS]
    return [*(f"wide: {line}" for line in wide), *(f"long: {one}" for one in long), *words]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_plain(path: Path) -> None:
    if str(path.relative_to(ROOT)) in PENDING:
        assert faults(path), "is plain: take it off the list"
    else:
        assert not faults(path)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_pages_it_names_are_there(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize(
    ("page", "words"),
    [("docs/guides/fix.md", 1500), ("docs/guides/tune.md", 1200), ("docs/guides/what-if.md", 1200),
     ("ARCHITECTURE.md", 2500)],
)  # fmt: skip
def test_a_page_is_short(page: str, words: int) -> None:
    assert len((ROOT / page).read_text().split()) <= words


def test_the_changelog_is_one_line_a_change() -> None:
    bullets = re.findall(r"^- (.*(?:\n  .*)*)", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert len(bullets) <= 60
    assert not [bullet for bullet in bullets if len(bullet.split()) > 16]
