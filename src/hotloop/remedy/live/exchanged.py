"""Functions that ``FILE.py:FUNCTION`` names, and another in the place of one, whoever holds it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


def functions(named: str) -> list[FunctionType]:
    """Functions of loaded modules that ``FILE.py:FUNCTION`` names; decorated ones as they were written."""
    file, _, name = named.rpartition(":")
    found: dict[int, FunctionType] = {}
    for module in list(sys.modules.values()):
        if not file or Path(getattr(module, "__file__", None) or "").name != Path(file).name:
            continue
        try:
            one: Any = functools.reduce(getattr, name.split("."), module)
        except AttributeError:
            continue
        while hasattr(one, "__wrapped__"):
            one = one.__wrapped__
        one = getattr(one, "__func__", one)
        if isinstance(one, FunctionType):
            found[id(one)] = one
    return list(found.values())


def copied(function: FunctionType) -> FunctionType:
    """Another function that does the same, whatever becomes of this one's code."""
    other = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    other.__kwdefaults__ = function.__kwdefaults__
    return other


def through(code: CodeType, call: Callable[..., Any]) -> CodeType:
    """Code that hands its arguments to ``call(args, kwargs)``, under the name of ``code``."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        call: Any = 0.5  # its place among the constants
        return call(args, kwargs)

    made = stand_in.__code__
    constants = tuple(call if one == 0.5 else one for one in made.co_consts)
    return made.replace(co_consts=constants, co_name=code.co_name, co_qualname=code.co_qualname)
