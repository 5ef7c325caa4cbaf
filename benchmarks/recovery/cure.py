"""A cure: pieces of a script's text, and what replaces them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cure:
    """``edits`` of a script's text; ``by``: "settings", or "code" where no remedy could have done it live."""

    edits: tuple[tuple[str, str], ...]
    by: str = "settings"

    def applied(self, source: str) -> str:
        """The cured source. Raises ValueError where the script is no longer what the cure was made for."""
        for old, new in self.edits:
            if source.count(old) != 1:
                raise ValueError(f"{old!r} is there {source.count(old)} times")
            source = source.replace(old, new)
        return source


def settings(old: str, new: str) -> Cure:
    return Cure(edits=((old, new),))


def code(*edits: tuple[str, str]) -> Cure:
    return Cure(edits=edits, by="code")
