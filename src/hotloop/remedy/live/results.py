"""Results of a function by the arguments of its calls, in memory shared with workers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from hotloop.remedy.live import packed
from hotloop.remedy.live.arguments import Arguments, Look, Unfit
from hotloop.remedy.live.shelf import KEY_BYTES, Shelf

#: Kept results that are computed again before any is given, and then every so many hits, fewer later.
CHECKED: Final = 8
AGAIN_EVERY: Final = 16
_AGAIN_LATER: Final = 64
_LATER: Final = 512
#: Calls during which something that the function reads may change: a file is opened at first, a table filled.
_MOST_MOVED: Final = 3
CHANGED: Final = "it gave another result for the same arguments"


@dataclass(kw_only=True)
class Asked:
    """One call. ``found`` holds its kept result."""

    given: tuple[Any, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: bytes
    found: tuple[Any] | None = None
    checks: bool = False  # the result is kept, and computed all the same
    look: Look | None = None


class Results:
    """Keeps the results of one function."""

    def __init__(self, arguments: Arguments, room: float) -> None:
        self.shelf = Shelf(room)
        self._arguments = arguments
        self._moved = 0

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked | None:
        """Look a call up; None where its result is not kept and need not be. Raises Unfit."""
        shelf, given = self.shelf, (*args, *kwargs.values())
        asked = Asked(given=given, args=args, kwargs=kwargs, key=self._key(args, kwargs))
        data = shelf.find(asked.key)
        if data is not None:
            asked.checks = shelf.checked < CHECKED
            if not asked.checks:
                shelf.hits += 1
                asked.checks = shelf.hits % (AGAIN_EVERY if shelf.hits <= _LATER else _AGAIN_LATER) == 0
            if not asked.checks:
                asked.found = (packed.unpacked(data),)
                return asked
        elif shelf.full:
            return None
        asked.look = self._arguments.look(given)
        return asked

    def learn(self, asked: Asked, result: Any) -> None:
        """Keep a result, or compare it with the one that is kept. Raises Unfit."""
        look = self._arguments.look(asked.given, asked.look)
        if asked.look is None or asked.look.states != look.states:
            raise Unfit("it draws random numbers")
        self._require(asked, result)
        if asked.look.reads != look.reads or asked.key != self._key(asked.args, asked.kwargs):
            self._moved += 1
            if self._moved > _MOST_MOVED:
                raise Unfit("it changes what it is given or reads")
            return
        try:
            data = packed.packed(result)
        except packed.Unpackable as error:
            raise Unfit(f"it gives {error}") from None
        kept = self.shelf.find(asked.key)
        if kept is None:
            self.shelf.store(asked.key, data)
        elif data != kept and not packed.alike(packed.unpacked(kept), result):
            raise Unfit(CHANGED + (": kept ones were used until then" if self.shelf.hits else ""))
        elif asked.checks:
            self.shelf.checked += 1
        if self.shelf.full and not self.shelf.hits and not self.shelf.checked:
            raise Unfit("the memory for its results was full before the same arguments came again")

    def _require(self, asked: Asked, result: Any) -> None:
        if result is None and not self.shelf.stored:
            raise Unfit("it gives nothing: it is called for what it does")
        if not asked.given:
            raise Unfit("it is given nothing that could come again")
        theirs = list(packed.mutable(asked.given))
        own = set(map(id, theirs))
        if any(id(part) in own for part in packed.mutable(result)) or packed.overlaps(result, theirs):
            raise Unfit("it gives what it was given, or a part of it")

    def _key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        return hashlib.blake2b(self._arguments.key(args, kwargs), digest_size=KEY_BYTES).digest()
