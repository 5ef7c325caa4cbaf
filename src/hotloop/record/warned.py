"""``warnings.jsonl``: what ``hotloop run`` warned of while it went on, for who watches it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, Final

from hotloop.foreign import clean, read

_MOST, _MOST_BYTES = 32, 1 << 20
_NAME: Final = "warnings.jsonl"
_PREFIX: Final = "warning: "


def kept_in(folder: Path, say: Callable[[str], None]) -> Callable[[str], None]:
    """``say`` that also keeps what is a warning in the run folder."""

    def say_and_keep(words: str) -> None:
        say(words)
        if words.startswith(_PREFIX):
            line = json.dumps({"unix_s": time(), "words": words.removeprefix(_PREFIX)})
            with suppress(OSError), (folder / _NAME).open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    return say_and_keep


def said_in(folder: Path) -> list[dict[str, Any]]:
    """The warnings of a run: ``unix_s`` and ``words``, which are safe to show. It is foreign data."""
    found = []
    with suppress(OSError, ValueError, RecursionError):  # the last line may be half written
        for line in read(folder / _NAME, _MOST_BYTES).splitlines()[:_MOST]:
            one = json.loads(line)
            if isinstance(one, dict) and isinstance(at := one.get("unix_s"), float) and 0 <= at < 1e11:
                found.append({"unix_s": at, "words": clean(one.get("words", ""))})
    return found
