"""What of a script's objects can be told to have changed between two epochs, by a look at each."""

from __future__ import annotations

import weakref
from collections import deque
from types import ModuleType
from typing import Any, Final

_PLAIN: Final = (int, float, str, bytes, type(None))
#: Those whose values can be compared at once.
_BARE: Final = frozenset((*_PLAIN, bool))
_CONTAINERS: Final = (list, tuple, dict, set, frozenset)
_BUILTIN: Final = frozenset(_CONTAINERS)
#: Items of a container that is compared by value, and of all that is compared.
_SMALL: Final = 1000
_MOST: Final = 20000


class State:
    """Equal to another where the script changed nothing in between, as far as it is reached from ``roots``.

    Plain values and what small containers hold by value; all else by identity, length and attributes.
    Not seen: what is changed in place, at the same length, in arrays and large containers. What can be
    referred to weakly is not kept alive.
    """

    __slots__ = ("_held", "_known", "_values")

    def __init__(self, *roots: Any) -> None:
        self._values: list[Any] = []
        self._known: list[weakref.ref[Any]] = []  # an identity says nothing once its object is gone
        self._held: list[Any] = []
        self._walk(deque(roots))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State) or self._values != other._values:
            return False
        return not any(ref() is None for state in (self, other) for ref in state._known)

    __hash__ = None  # type: ignore[assignment]

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
        self._values += (id(value), size)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict) and not isinstance(value, ModuleType):
            ahead += _items(attributes)


def _items(value: Any) -> list[Any]:
    return [*value, *list(value.values())] if isinstance(value, dict) else list(value)
