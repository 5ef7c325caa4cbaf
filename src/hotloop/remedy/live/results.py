"""Results of a function by the arguments of its calls, in memory shared with workers."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import time
from dataclasses import dataclass
from typing import Any, Final

from hotloop.remedy.live import packed
from hotloop.remedy.live.arguments import Arguments, Look, Unfit
from hotloop.remedy.live.form import Pace

#: Bytes before the first record: counters, and from ``_WORDS`` on why it ended.
_HEAD: Final = 4096
_WORDS: Final = 512
KEY_BYTES: Final = 16
_LENGTH_BYTES: Final = 8
#: Memory is taken in pieces of this size at least.
_PIECE: Final = 1 << 22
_TRIES: Final = 4


def _counter(at: int) -> Any:
    """A number that all processes share; of two that count at once one may be lost."""

    def put(shelf: Shelf, value: int) -> None:
        shelf._count[at] = value

    return property(lambda shelf: int(shelf._count[at]), put)


class Shelf:
    """At most ``room`` bytes. ``why`` says why nothing is kept any more, "" while something is."""

    checked = _counter(2)  # kept results that were made again and found the same
    hits = _counter(3)  # results that were handed out
    stored = _counter(4)
    full = _counter(5)  # there was no room for a result
    ended = _counter(6)  # nothing is kept any more

    def __init__(self, room: float) -> None:
        memory = importlib.import_module("hotloop.feed.memory")
        self._size = memory.round_up(max(_HEAD + _PIECE, int(room)))
        self._file = memory.SharedFile("results")
        self._file.reserve(_HEAD)
        self._bytes = memory.Mapping(self._file.descriptor, self._size).array()
        self._count = self._bytes[:_WORDS].view("uint64")
        self._count[0] = self._count[1] = _HEAD
        self._index: dict[bytes, tuple[int, int]] = {}
        self._scanned = _HEAD

    @property
    def why(self) -> str:
        """Why nothing is kept any more."""
        words: bytes = self._bytes[_WORDS:_HEAD].tobytes()
        return words.rstrip(b"\0").decode(errors="replace")

    def end(self, why: str) -> None:
        """Keep nothing from now on, in all processes."""
        if not self.ended:
            words = why.encode()[: _HEAD - _WORDS]
            self._bytes[_WORDS : _WORDS + len(words)] = memoryview(words)
            self.ended = 1
        self._index.clear()

    def find(self, key: bytes) -> memoryview | None:
        """What is kept under a key."""
        place = self._index.get(key)
        if place is None and self._scanned < int(self._count[0]):
            self.scan()
            place = self._index.get(key)
        return None if place is None else memoryview(self._bytes[place[0] : place[0] + place[1]])

    def scan(self) -> None:
        """Take note of what other processes kept."""
        end, at = int(self._count[0]), self._scanned
        while at < end:
            begin = at + KEY_BYTES + _LENGTH_BYTES
            length = int.from_bytes(self._bytes[begin - _LENGTH_BYTES : begin].tobytes(), "little")
            self._index[self._bytes[at : at + KEY_BYTES].tobytes()] = (begin, length)
            at = begin + length
        self._scanned = at

    def store(self, key: bytes, data: bytes) -> None:
        """Keep ``data`` where there is room, and no other process is writing for long."""
        if self.full or self.ended or not self._lock():
            return
        try:
            self.scan()
            if key not in self._index and self._has_room(KEY_BYTES + _LENGTH_BYTES + len(data)):
                record = key + len(data).to_bytes(_LENGTH_BYTES, "little") + data
                at = int(self._count[0])
                self._bytes[at : at + len(record)] = memoryview(record)
                self._count[0] = at + len(record)
                self.stored += 1
                self.scan()
        finally:
            fcntl.lockf(self._file.descriptor, fcntl.LOCK_UN)

    def _lock(self) -> bool:
        for _ in range(_TRIES):
            try:
                fcntl.lockf(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                time.sleep(1e-4)
            else:
                return True
        return False

    def _has_room(self, more: int) -> bool:
        end, taken = int(self._count[0]) + more, int(self._count[1])
        if end <= taken:
            return True
        wanted = min(self._size, max(end, taken + _PIECE))
        if end > wanted:
            self.full = 1
            return False
        try:
            self._file.reserve(wanted - taken, offset=taken)
        except OSError:
            self.full = 1
            return False
        self._count[1] = wanted
        return True


#: Kept results that are computed again before any is given.
CHECKED: Final = 8
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
        self._moved, self._pace = 0, Pace()

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked | None:
        """Look a call up; None where its result is not kept and need not be. Raises Unfit."""
        shelf, given = self.shelf, (*args, *kwargs.values())
        asked = Asked(given=given, args=args, kwargs=kwargs, key=self._key(args, kwargs))
        data = shelf.find(asked.key)
        if data is not None:
            asked.checks = self._pace.due() or shelf.checked < CHECKED
            if not asked.checks:
                shelf.hits += 1
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
            self._pace.done()
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
