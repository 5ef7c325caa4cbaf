"""Small numbers for the user's objects, without keeping them alive and without touching them."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Known(Generic[T]):
    """What is remembered about objects: like a WeakKeyDictionary by identity, never asking for ``__eq__``.

    ``entries`` maps ``id(obj)`` to a weak reference and what is remembered, for code in a hurry.
    """

    def __init__(self) -> None:
        self.entries: dict[int, tuple[weakref.ref[Any], T]] = {}

    def get(self, obj: Any) -> T | None:
        """What is remembered about this very object."""
        entry = self.entries.get(id(obj))
        return entry[1] if entry is not None and entry[0]() is obj else None

    def put(self, obj: Any, value: T) -> None:
        """Remember; an object that cannot be referred to weakly is not remembered."""
        key = id(obj)
        entries = self.entries

        def forget(ref: weakref.ref[Any]) -> None:
            if (entry := entries.get(key)) is not None and entry[0] is ref:
                del entries[key]

        try:
            entries[key] = (weakref.ref(obj, forget), value)
        except TypeError:
            return

    def values(self) -> list[tuple[Any, T]]:
        """The objects that still live, and what is remembered about them."""
        return [(obj, value) for ref, value in list(self.entries.values()) if (obj := ref()) is not None]


def name_of(obj: Any) -> str | None:
    """``module.qualname`` of a function or class, of the class of anything else; None for None."""
    if obj is None:
        return None
    inner = getattr(obj, "func", obj)  # functools.partial
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def code_place(function: Any) -> tuple[str | None, int | None]:
    """File and first line of a Python function; (None, None) for anything else."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else (None, None)
