"""Words in another language, on their way out: code, JSON and recordings stay English.

A catalogue (gettext) holds whole texts, and templates such as ``{n} steps, {a} in all``; a place whose name
begins with n takes a number. What is put into a place is looked up in turn, so one sentence may be made of
several; in a place whose name begins with x stands a name of the user's, which stays. A text that the
catalogue lacks stays English.
"""

from __future__ import annotations

import gettext
import html
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from hotloop.errors import UsageError

#: Where the catalogues lie: ``LANGUAGE/LC_MESSAGES/hotloop.mo``, made of ``hotloop.po`` by ``make docs``.
FOLDER: Final = Path(__file__).parent / "locale"

_PLACE = re.compile(r"\{(\w+)\}")
_NUMBER = r"[\d,.]+"
#: Characters of a text that templates are tried on: with several places each takes time as a power of them.
_LONGEST = 600
#: Texts of a page: between tags, and in attributes that are read out or shown; not what is code.
_QUIET = re.compile(r"(<(script|style|code|pre)\b.*?</\2>)", re.S)
_TEXT = re.compile(
    r"(?:(?<=>)|^)[^<>]+(?=<|$)|(?<= title=\")[^\"]+|(?<= aria-label=\")[^\"]+|(?<= placeholder=\")[^\"]+"
)

_chosen: list[str] = []
_texts: dict[str, str] = {}
_templates: list[tuple[re.Pattern[str], str]] = []


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
    for text, other in getattr(found, "_catalog", {}).items():
        if isinstance(text, str) and text:
            _texts[text] = other
    for text in sorted(_texts, key=lambda one: -len(_PLACE.sub("", one))):  # what says most comes first
        if _PLACE.search(text):
            parts = _PLACE.split(text)
            asks = "".join(
                f"(?P<{part}>{_NUMBER if part[0] == 'n' else '.+?'})" if i % 2 else re.escape(part)
                for i, part in enumerate(parts)
            )
            _templates.append((re.compile(asks, re.S), _texts[text]))


def chosen() -> str:
    """The language in use, "" where it is English."""
    return _chosen[0] if _texts else ""


@lru_cache(maxsize=4096)
def said(text: str) -> str:
    """A text in the language in use; a long one, which no template is made for, only as a whole."""
    if text in _texts or len(text) > _LONGEST:
        return _texts.get(text, text)
    for asks, other in _templates:
        if found := asks.fullmatch(text):
            return _PLACE.sub(lambda place: _put(place[1], found[place[1]]), other)
    return text


def _put(place: str, text: str) -> str:
    return text if place[0] == "x" else said(text)


def page(text: str) -> str:
    """An HTML page with its words in the language in use; code and scripts stay as they are."""
    if not _texts:
        return text

    def translated(found: re.Match[str]) -> str:
        plain = html.unescape(found[0])
        other = said(plain.strip())
        return found[0] if other == plain.strip() else html.escape(plain.replace(plain.strip(), other))

    parts = _QUIET.split(text)  # text, quiet, its tag, text ...
    whole = "".join(
        _TEXT.sub(translated, part) if number % 3 == 0 else part
        for number, part in enumerate(parts)
        if number % 3 != 2
    )
    return whole.replace('<html lang="en">', f'<html lang="{chosen()}">', 1)
