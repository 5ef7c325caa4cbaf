"""What is said of one finding id; its run-time rule and its static rule share these words."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """The home of one finding id.

    ``title`` is one sentence that says what it means. ``advice`` is the default of what to do; a rule that
    knows more says its own. ``remedies`` are all that may answer it.
    """

    title: str
    advice: str
    remedies: tuple[str, ...] = ()
