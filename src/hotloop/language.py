"""Words in another language, on their way out: code, JSON and recordings stay English.

A catalogue (gettext) holds whole texts, and templates such as ``{n} steps, {a} in all``; a place whose name
begins with n takes a number, one that begins with o a clause or nothing. What is put into a place is looked
up in turn, so one sentence may be made of several; in a place whose name begins with x stands a name of the
user's, which stays. Several sentences, or clauses behind "; " or a bracket, that are in no template together
are looked up one by one. A text that the catalogue lacks stays English.
"""

from __future__ import annotations

import gettext
import html
import os
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Final

from hotloop.errors import UsageError

#: Where the catalogues lie: ``LANGUAGE/LC_MESSAGES/hotloop.mo``, made of ``hotloop.po`` by ``make docs``.
FOLDER: Final = Path(__file__).parent / "locale"

_PLACE, _WORD = re.compile(r"\{(\w+)\}"), re.compile(r"\w+")
#: What a place takes, by the first letter of its name.
_TAKES = {"n": r"[\d,.]+", "o": "(?:[ ,:;(].*?)?", "t": r"[\d,.]+ (?:ns|us|ms|s|min|h)(?: \d+ (?:min|s))?"}
#: Characters of a text that templates are tried on: with several places each takes time as a power of them.
_LONGEST = 1200
_SENTENCE = re.compile(r"(?<=[.?。]) (?=[A-Z])")
#: Characters of Chinese, Japanese and Korean, between which a line may end.
_EAST: Final = r"\u2e80-\u9fff\uac00-\ud7a3\uff00-\uff60"
#: A space, and what stays together: a word or one of these characters, with brackets and marks behind it.
_PIECE: Final = re.compile(rf"( ?)([（「『]*(?:[^ {_EAST}]+|[{_EAST}])[，。；：、！？）」』]*)")
#: Texts of a page: between tags, and in attributes that are read out or shown; not code, nor English guides.
_QUIET = re.compile(r"(<(script|style|code|pre)\b.*?</\2>|<div class=\"prose\".*?</div></details>)", re.S)
#: Lines of a text that are code with its number, or a command to copy.
_CODE: Final = re.compile(r"[> ]*\d+ \| | {4,}(?:hotloop|git|python\S*) ")
_BARE = re.compile(r"\S(.*\S)?", re.S)
_TEXT = re.compile(
    r"(?:(?<=>)|^)[^<>]+(?=<|$)|(?<= title=\")[^\"]+|(?<= aria-label=\")[^\"]+|(?<= placeholder=\")[^\"]+"
)

_chosen: list[str] = []
_texts: dict[str, str] = {}
#: The rarest word of a template -> (rank, all its words, itself); what says most has the first rank.
_templates: dict[str, list[tuple[int, set[str], str]]] = {}


def choose(name: str = "") -> None:
    """Use this language, or where none is named that of LC_ALL, LC_MESSAGES or LANG. Raises UsageError."""
    known = sorted(one.name for one in FOLDER.iterdir() if one.is_dir())
    asked = name or next(filter(None, map(os.environ.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    language = re.split(r"[_.@-]", asked)[0].lower()
    if name and language not in (*known, "en"):
        raise UsageError(f"there are no words in {name!r}", hint=f"languages: en, {', '.join(known)}")
    found = gettext.translation("hotloop", FOLDER, [language], fallback=True) if language in known else None
    _chosen[:] = [language]
    _texts.clear()
    _templates.clear()
    said.cache_clear()
    _texts.update((a, b) for a, b in getattr(found, "_catalog", {}).items() if a and isinstance(a, str))
    said_most = sorted(filter(_PLACE.search, _texts), key=lambda one: -len(_PLACE.sub("", one)))
    words = [{one for one in _WORD.findall(_PLACE.sub("0", text)) if "0" not in one} for text in said_most]
    often = Counter(word for of_one in words for word in of_one)
    for rank, text in enumerate(said_most):
        rarest = min(words[rank], key=lambda word: often[word], default="")
        _templates.setdefault(rarest, []).append((rank, words[rank], text))


def chosen() -> str:
    """The language in use, "" where it is English."""
    return _chosen[0] if _texts else ""


@lru_cache(maxsize=4096)
def said(text: str) -> str:
    """A text in the language in use; a long one, which no template is made for, only as a whole."""
    if text in _texts or not _texts or len(text) > _LONGEST:
        return _texts.get(text, text)
    sentences = _SENTENCE.split(text)
    others = list(map(said, sentences)) if len(sentences) > 1 else sentences
    if all(one != other for one, other in zip(sentences, others, strict=True)):
        return "".join(others)
    words = {"", *_WORD.findall(text)}
    near = sorted(one for word in words for one in _templates.get(word, ()) if one[1] <= words)
    for _, _, template in near:
        if found := _asks(template).fullmatch(text):
            return _PLACE.sub(lambda at: (said, str)[at[1][0] == "x"](found[at[1]]), _texts[template])
    for mark, other in (("; ", "；"), (" (", " (")) if len(sentences) == 1 else ():
        head, there, rest = text.partition(mark)
        if there and (said(head), said(rest)) != (head, rest):
            return said(head) + other + said(rest)
    return " ".join(others)


def marked(mark: str, text: str) -> str:
    """``error: TEXT``, each looked up by itself: a template may take the mark for a part of the text."""
    return said(f"{mark}:") + " " * (not chosen()) + said(text)


@lru_cache(maxsize=1024)
def _asks(template: str) -> re.Pattern[str]:
    parts = _PLACE.split(template)
    parts[::2] = map(re.escape, parts[::2])
    parts[1::2] = [f"(?P<{part}>{_TAKES.get(part[0], '.+?')})" for part in parts[1::2]]
    return re.compile("".join(parts), re.S)


def lines(
    text: str, width: int = 80, mark: str = "", indent: str | None = None, *, whole: bool = True
) -> list[str]:
    """A text in the language in use in lines of at most ``width`` cells: behind ``mark``, the following ones
    under ``indent`` (default: as wide as the mark). A word longer than a line stays ``whole``, or is cut.
    """
    from rich.cells import cell_len, set_cell_size  # East Asian wide characters take two cells

    under = " " * cell_len(mark) if indent is None else indent
    made, used, room = [mark], 0, max(1, width - cell_len(mark))
    for space, piece in _PIECE.findall(" ".join(said(text).split())):
        if used and used + len(space) + cell_len(piece) > room:
            made, used, room = [*made, under], 0, max(1, width - cell_len(under))
        while not whole and cell_len(piece) > room:
            head = set_cell_size(piece, room).rstrip() or piece[0]
            made[-1:], piece = [made[-1] + head, under], piece[len(head) :]
        made[-1] += space * bool(used) + piece
        used += len(space) * bool(used) + cell_len(piece)
    return [line for line in made if line.strip()] if text.strip() else []


def plain(text: str) -> str:
    """The lines of a text, one by one, in the language in use; rows of a table only as a whole."""

    def translated(line: re.Match[str]) -> str:
        row = ("  " in line[2] and line[2] not in _texts) or _CODE.match(line[0])
        return line[0] if row else line[1] + said(line[2])

    return re.sub(r"(?m)^((?:[>#-]+ | )*)(\S.*\S)", translated, text) if _texts else text


def page(text: str) -> str:
    """An HTML page with its words in the language in use; code and scripts stay as they are."""
    if not _texts:
        return text

    def translated(found: re.Match[str]) -> str:
        plain = html.unescape(found[0])
        bare = " ".join(plain.split())
        return found[0] if said(bare) == bare else html.escape(_BARE.sub(lambda _: said(bare), plain))

    parts = _QUIET.split(text)  # text, quiet, its tag, text ...
    parts[::3] = [_TEXT.sub(translated, part) for part in parts[::3]]
    del parts[2::3]
    return "".join(parts).replace('<html lang="en">', f'<html lang="{chosen()}">', 1)
