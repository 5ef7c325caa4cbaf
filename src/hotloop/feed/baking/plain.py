"""Pickles that hold data and the names of classes of samples, opened without running what else they ask for.

A bake may come from somebody else. Its structure and records need lists, numbers, text and the classes that
samples are instances of; a pickle can ask for any callable of any module. As in ``torch.load``, what has no
plain form is opened only for those who say that they trust it.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
import sys
from collections.abc import Mapping
from typing import Any

from hotloop.feed.errors import NotPlainError
from hotloop.feed.tree import Branch, Leaf

#: The words that every refusal ends with.
HINT = "if you trust who made it: Baked(path, trust=True)"


def loads(data: bytes | memoryview, trust: bool) -> Any:
    """Like ``pickle.loads``; without ``trust`` only data, and classes of samples that are imported by now.

    Raises:
        NotPlainError: there is something else in it.
    """
    return pickle.loads(data) if trust else _Plain(io.BytesIO(data)).load()  # nosec B301


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found: Any = sys.modules.get(module)
        if found is None:
            hint = f"import {module}, which defines the samples' class {name}, or, {HINT}"
            raise NotPlainError(f"the samples' own class {module}.{name} is not imported", hint=hint)
        for part in name.split("."):
            found = getattr(found, part, None)
        if not _is_structure(found):
            raise NotPlainError(f"it holds {module}.{name}, which is no class of a sample", hint=HINT)
        return found


def _is_structure(found: Any) -> bool:
    """Whether it is a class that trees are built of: see :mod:`hotloop.feed.tree`."""
    if not isinstance(found, type):
        return False
    named = issubclass(found, tuple) and hasattr(found, "_fields")
    known = found in (Leaf, Branch, list, tuple, dict) or issubclass(found, Mapping)
    return known or named or dataclasses.is_dataclass(found)
