"""What an object reads besides its attributes: of its classes, of the modules that its code names."""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Iterator
from opcode import opmap
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from hotloop.state.identity import is_own
from hotloop.state.stored import attributes

_METHODS: Final = (FunctionType, staticmethod, classmethod, property, functools._lru_cache_wrapper)
_CONTAINERS: Final = (list, dict, set, deque)
#: What code that names one of these changes by itself is no change of the script's.
_CHANGING: Final = frozenset(["add", "append", "appendleft", "extend", "insert", "setdefault", "update"])
_DEPTH: Final = 3
_GLOBAL, _NAME, _EXTENDED = (opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "EXTENDED_ARG"))


def beside(value: Any) -> Iterator[Any]:
    """What the code of a function, of a class of the user's or of an object of one reads."""
    if isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif type(value) is functools.partial:
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield value.fget
    elif isinstance(value, FunctionType):
        if is_own(value.__globals__.get("__name__", "")):
            yield from (value.__defaults__, value.__kwdefaults__)
            yield from named(value)
    elif not isinstance(value, type):
        yield from (one for one in type(value).__mro__ if is_own(one.__module__))
    elif is_own(value.__module__):
        members = [one for name, one in list(vars(value).items()) if name != "__init__"]
        yield from (one for one in members if isinstance(one, _METHODS))


def named(function: FunctionType) -> Iterator[Any]:
    """What a function closes over, and what its code names of its module: of objects there the attributes
    that it names too.
    """
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    names = code_names(function.__code__)
    for name in sorted(global_names(function.__code__) & function.__globals__.keys()):
        yield from _parts(function.__globals__[name], names, _DEPTH)


def _parts(value: Any, names: frozenset[str], depth: int) -> Iterator[Any]:
    if isinstance(value, _CONTAINERS) and names & _CHANGING:
        return
    if isinstance(value, type):
        held = dict(vars(value)) if is_own(value.__module__) else {}
    else:
        held = {} if isinstance(value, FunctionType) else attributes(value)
    inside = sorted(names & held.keys()) if depth else []
    for name in inside:
        yield from _parts(held[name], names, depth - 1)
    if not inside and not isinstance(value, ModuleType):
        yield value


@functools.lru_cache(maxsize=1024)
def code_names(code: CodeType) -> frozenset[str]:
    """Every name that code, and the functions within it, load by name."""
    inner = (code_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(code.co_names).union(*inner)


@functools.lru_cache(maxsize=1024)
def global_names(code: CodeType) -> frozenset[str]:
    """The names of its module that code, and the functions within it, read: ``epoch``, not ``self.epoch``."""
    found, above, raw = set[str](), 0, code.co_code
    for kind, given in zip(raw[::2], raw[1::2], strict=True):
        number = above | given
        above = number << 8 if kind == _EXTENDED else 0
        if kind == _GLOBAL:
            found.add(code.co_names[number >> 1])
        elif kind == _NAME:
            found.add(code.co_names[number])
    inner = (global_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return frozenset(found).union(*inner)
