"""What of a script's objects can be told to have changed between two epochs, by a look at each."""

from __future__ import annotations

import contextlib
import dis
import functools
import weakref
import zlib
from collections import deque
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from hotloop.probe.identity import is_own
from hotloop.remedy.live.closed import attribute

_PLAIN: Final = (int, float, str, bytes, type(None))
#: Those whose values can be compared at once.
_BARE: Final = frozenset((*_PLAIN, bool))
_CONTAINERS: Final = (list, tuple, dict, set, frozenset)
_BUILTIN: Final = frozenset(_CONTAINERS)
#: Items of a container that is compared by value, and of all that is compared.
_SMALL: Final = 1000
_MOST: Final = 20000
#: Bytes of an array whose content is compared, and of all such arrays.
_SMALL_BYTES: Final = 2**20
_MOST_BYTES: Final = 8 * 2**20
#: Objects that say nothing of samples, by the module of their class.
_APART: Final = frozenset(["_thread", "logging", "threading", "tqdm"])
_METHODS: Final = (FunctionType, staticmethod, classmethod, property, functools._lru_cache_wrapper)
#: Methods of containers: what code changes by itself is not what the script changed.
_CHANGING: Final = frozenset(["add", "append", "appendleft", "extend", "insert", "setdefault", "update"])


class State:
    """Equal to another where the script changed nothing in between, as far as it is reached from ``roots``.

    Plain values and what small containers and small arrays hold by value; all else by identity, length and
    attributes. What the code of the user's classes and functions loads by name is reached too.
    Not seen: what is changed in place, at the same length, in large arrays and containers, and files. What
    can be referred to weakly is not kept alive.
    """

    __slots__ = ("_bytes", "_held", "_known", "_values")

    def __init__(self, *roots: Any) -> None:
        self._bytes = _MOST_BYTES
        self._values: list[Any] = []
        self._known: list[weakref.ref[Any]] = []  # an identity says nothing once its object is gone
        self._held: list[Any] = []
        self._walk(deque(roots))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State) or self._values != other._values:
            return False
        return not any(ref() is None for state in (self, other) for ref in state._known)

    __hash__ = None  # type: ignore[assignment]

    def reached(self) -> Iterator[Any]:
        """What was reached and is no plain value, as far as it is still there."""
        yield from (one for ref in self._known if (one := ref()) is not None)
        yield from self._held

    def _walk(self, ahead: deque[Any]) -> None:
        values, held, seen, count = self._values, self._held, set[int](), 0
        while ahead and count < _MOST:
            value = ahead.popleft()
            kind, number = type(value), id(value)
            count += 1
            if kind in _BARE or isinstance(value, _PLAIN):
                values += (kind, value)
            elif number in seen:
                continue
            elif kind in _BUILTIN:
                seen.add(number)
                size = len(value)
                if size > _SMALL:
                    held.append(value)
                    values += (number, size)
                else:
                    count += self._take(value, kind, size, ahead)
            else:
                seen.add(number)
                self._look_at(value, kind, ahead)

    def _take(self, value: Any, kind: type, size: int, ahead: deque[Any]) -> int:
        """What a small container holds; how many values were taken at once."""
        inside = _items(value)
        kinds = set(map(type, inside))
        if not kinds <= _BARE:
            sizes = list(map(len, inside)) if kinds <= _BUILTIN else []
            if not sizes or min(sizes) <= _SMALL:
                self._values += (kind, size)
                ahead += inside
                return 0
            self._held += inside
            self._values += (kind, size, list(map(id, inside)), sizes)
            return size
        self._values += (kind, size, kinds if len(kinds) < 2 else list(map(type, inside)), inside)
        return len(inside)

    def _look_at(self, value: Any, kind: type, ahead: deque[Any]) -> None:
        """What is no plain value and no container of Python's own."""
        try:
            size = len(value)
        except Exception:  # whatever the user's __len__ does
            size = None
        if isinstance(value, _CONTAINERS) and size is not None and size <= _SMALL:
            self._values += (kind, size)
            ahead += _items(value)
            return
        try:
            self._known.append(weakref.ref(value))
        except TypeError:
            self._held.append(value)
        self._values += (id(value), size, self._content(value))
        if isinstance(value, ModuleType) or kind.__module__.partition(".")[0] in _APART:
            return
        attributes = attribute(value, "__dict__")
        if isinstance(attributes, dict):
            ahead += _items(attributes)
        ahead += _slots(value)
        ahead += _beside(value)

    def _content(self, value: Any) -> tuple[int | None, int | None]:
        """Numbers that are others once a tensor, or a small array, was changed in place."""
        version = check = None
        with contextlib.suppress(Exception):  # inference tensors have no version, few objects have bytes
            if type(value).__module__.partition(".")[0] == "torch":
                version = int(value._version)
                value = value.detach().numpy()  # who holds its memory too leaves the version as it is
            view = memoryview(value)
            if view.nbytes <= min(_SMALL_BYTES, self._bytes):
                self._bytes -= view.nbytes
                check = zlib.crc32(view)
        return version, check


def _slots(value: Any) -> Iterator[Any]:
    """Attributes that classes of the user's have without a dictionary."""
    for kind in type(value).__mro__:
        names = vars(kind).get("__slots__", ()) if is_own(kind.__module__) else ()
        for name in (names,) if isinstance(names, str) else names:
            yield attribute(value, name)


def _beside(value: Any) -> Iterator[Any]:
    """What an object reads besides its attributes: of its classes, of what its code names or closes over."""
    if isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield value.fget
    elif isinstance(value, FunctionType):
        if is_own(value.__globals__.get("__name__", "")):
            yield from (value.__defaults__, value.__kwdefaults__)
            yield from _named(value)
    elif not isinstance(value, type):
        yield from (one for one in type(value).__mro__ if is_own(one.__module__))
    elif is_own(value.__module__):
        for name, member in vars(value).items():
            plain = isinstance(member, _PLAIN) and not name.startswith("__")
            if plain or (name != "__init__" and isinstance(member, _METHODS)):
                yield member


def _named(function: FunctionType) -> Iterator[Any]:
    """What a function's code loads by name: of modules and of objects the part that it takes."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    for names in _loads(function.__code__):
        held, value = function.__globals__, None
        for position, name in enumerate(names):
            if name not in held:
                changes = position > 0 and name in _CHANGING
                break
            value, changes = held[name], False
            held = attribute(value, "__dict__", {})
        if not changes and not isinstance(value, ModuleType):
            yield value


@functools.lru_cache(maxsize=1024)
def _loads(code: CodeType) -> tuple[tuple[str, ...], ...]:
    """The globals that code loads, each with the attributes that it then takes: ``("config", "noise")``."""
    found: list[tuple[str, ...]] = []
    follows = False
    for instruction in dis.get_instructions(code):
        kind = instruction.opname
        if kind in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.append((instruction.argval,))
            follows = True
        elif follows and kind in ("LOAD_ATTR", "LOAD_METHOD"):
            found[-1] += (instruction.argval,)
        else:
            follows = follows and kind == "EXTENDED_ARG"
    inner = (one for one in code.co_consts if isinstance(one, CodeType))
    return (*found, *(names for one in inner for names in _loads(one)))


def _items(value: Any) -> list[Any]:
    return [*value, *list(value.values())] if isinstance(value, dict) else list(value)
