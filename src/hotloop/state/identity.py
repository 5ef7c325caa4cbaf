"""Small numbers for the user's objects, without keeping them alive and without touching them."""

from __future__ import annotations

import os
import sys
import weakref
from types import CodeType
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_LIBRARY: Final = os.path.dirname(os.__file__)
#: Decorators around a function: an object that has every attribute has them without end.
_WRAPPED: Final = 32


class Known(Generic[T]):
    """What is remembered about objects: like a WeakKeyDictionary by identity, never asking for ``__eq__``.

    ``entries`` maps ``id(obj)`` to what is remembered, for code in a hurry. An object takes its entry with it
    when it goes, before another can be given its id.
    """

    def __init__(self) -> None:
        self.entries: dict[int, T] = {}
        self._refs: dict[int, weakref.ref[Any]] = {}

    def get(self, obj: Any) -> T | None:
        """What is remembered about this very object."""
        return self.entries.get(id(obj))

    def put(self, obj: Any, value: T) -> None:
        """Remember; an object that cannot be referred to weakly is not remembered."""
        key, entries, refs = id(obj), self.entries, self._refs
        if key in entries:
            entries[key] = value
            return

        def forget(ref: weakref.ref[Any]) -> None:
            if refs.get(key) is ref:
                del refs[key], entries[key]

        try:
            refs[key] = weakref.ref(obj, forget)
        except TypeError:
            return
        entries[key] = value

    def clear(self) -> None:
        """Forget everything."""
        self._refs.clear()
        self.entries.clear()

    def values(self) -> list[tuple[Any, T]]:
        """The objects that still live, and what is remembered about them."""
        living = [obj for ref in list(self._refs.values()) if (obj := ref()) is not None]
        return [(obj, self.entries[id(obj)]) for obj in living]


def name_of(obj: Any) -> str | None:
    """``module.qualname`` of a function or class, of the class of anything else; None for None."""
    if obj is None:
        return None
    inner = getattr(obj, "func", obj)  # functools.partial
    named = inner if hasattr(inner, "__qualname__") else type(inner)
    return f"{named.__module__}.{named.__qualname__}"


def code_place(function: Any) -> tuple[str | None, int | None]:
    """File and first line of a Python function; (None, None) for anything else."""
    code = code_of(function)
    return (code.co_filename, code.co_firstlineno) if code is not None else (None, None)


def code_of(function: Any) -> CodeType | None:
    """The code of a Python function, beneath its decorators; None for anything else."""
    for _ in range(_WRAPPED):
        if not hasattr(function, "__wrapped__"):
            break
        function = function.__wrapped__
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def is_own(name: str) -> bool:
    """Whether a module is the user's own, and not of Python or installed."""
    if name == "__main__":
        return True
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    installed = file.startswith(_LIBRARY) or "site-packages" in file or "dist-packages" in file
    return bool(file) and not installed and name.partition(".")[0] not in ("torch", "hotloop")
