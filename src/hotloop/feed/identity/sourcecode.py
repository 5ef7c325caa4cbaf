"""The user's own code as digests that only a change of meaning changes."""

from __future__ import annotations

import ast
import hashlib
import inspect
import pickle
import random
import sys
import sysconfig
import textwrap
import types
from typing import Any

import numpy as np
import torch

_INSTALLED = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


#: Objects whose state says nothing about samples: who runs, not what is read.
_IRRELEVANT = ("_thread.", "threading.", "logging.", "torch._C.Generator", "numpy.random.", "random.Random")


def is_irrelevant(value: Any) -> bool:
    """A lock, a logger or a generator of random numbers, whose seed may count (:func:`seed_of`)."""
    return f"{type(value).__module__}.{type(value).__qualname__}".startswith(_IRRELEVANT)


def seed_of(value: Any) -> str:
    """What a generator of random numbers starts from, in words; nothing for all else.

    That is its seed where it keeps it, so that drawing changes nothing; its state where it does not.
    """
    if isinstance(value, torch.Generator):
        return f", seed {value.initial_seed()}"
    if isinstance(value, random.Random):
        return f", state {digest(repr(value.getstate()).encode())}"
    if isinstance(value, np.random.RandomState):
        return f", state {digest(pickle.dumps(value.get_state(legacy=False)))}"
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        value = value.seed_seq
    if isinstance(value, np.random.SeedSequence):
        return f", seed {value.entropy} {value.spawn_key} {value.pool_size}"
    return ""


def texts(code: types.CodeType) -> set[str]:
    """The strings a function's code holds, inner functions included."""
    found: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found |= texts(constant)
        else:
            inside = constant if isinstance(constant, (tuple, frozenset)) else (constant,)
            found.update(text for text in inside if isinstance(text, str))
    return found


def global_names(code: types.CodeType) -> set[str]:
    """The global names and attributes that a function's code mentions, inner functions included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= global_names(constant)
    return names


def qualified(value: Any) -> str:
    """The module and name of a class or function."""
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', type(value).__name__)}"


def module_name(value: Any) -> str:
    """The module whose code a class, function or module is; not what a decorator copied from another."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.FunctionType):
        return str(value.__globals__.get("__name__", "__main__"))
    return getattr(value, "__module__", None) or ""


def is_installed(value: Any) -> bool:
    """From the standard library, an installed package, or hotloop: not the user's own code."""
    module = sys.modules.get(module_name(value))
    if module is None or module.__name__ == "__main__":
        return False
    if module.__name__.partition(".")[0] in ("torch", "numpy", "hotloop", "builtins"):
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    return "site-packages" in file or "dist-packages" in file or file.startswith(_INSTALLED)


def source_digest(value: Any) -> str:
    """A digest of the source without comments and layout; empty where there is none."""
    try:
        text = textwrap.dedent(inspect.getsource(getattr(value, "__code__", value)))
    except (OSError, TypeError):
        return ""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda in the middle of an expression
        return digest(text.encode())
    return digest(ast.unparse(tree).encode())


def function_of(member: Any) -> Any:
    """The function behind a method of any kind, or a property; else the member itself."""
    return getattr(member, "__func__", None) or getattr(member, "fget", None) or member


def digest(data: Any) -> str:
    """Sixteen letters for any bytes."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
