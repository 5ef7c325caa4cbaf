"""What the script's objects hold, read without running its code: a property may draw a random number."""

from __future__ import annotations

import dataclasses
import sys
from collections import UserDict
from collections.abc import Sequence
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, Final

#: Attributes that C code answers.
_IN_C: Final = (GetSetDescriptorType, MemberDescriptorType)


def attributes(one: Any) -> dict[str, Any]:
    """What an object holds in its dictionary."""
    try:
        held = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """An attribute that C code answers, as of tensors, arrays and slots; else ``default``."""
    for kind in type(value).__mro__:
        found = kind.__dict__.get(name)
        if found is not None:
            if type(found) not in _IN_C:
                return default
            try:
                with sys.modules["torch"]._C.DisableTorchFunction():
                    return found.__get__(value)
            except (AttributeError, RuntimeError):  # an empty slot; a tensor without the attribute
                return default
    return default


def slots(one: Any) -> list[tuple[str, Any]]:
    """What an object holds beside its dictionary, by name."""
    found: list[tuple[str, Any]] = []
    for kind in type(one).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if type(name) is str and not name.startswith("__"):
                found.append((name, attribute(one, name)))
    return found


def is_tensor(value: Any) -> bool:
    """Whether it is a tensor, never asking the object itself."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.Tensor in type(value).__mro__


def is_array(value: Any) -> bool:
    """Whether it is a numpy array or scalar."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and not {numpy.ndarray, numpy.generic}.isdisjoint(type(value).__mro__)


def children(node: Any) -> Sequence[tuple[Any, Any]] | None:
    """(name, value) of what a container or dataclass stores; None for anything else.

    Also for mappings and sequences of which it is not known that they store: those may compute on access.
    """
    kinds = type(node).__mro__
    if dict in kinds:
        return list(dict.items(node))
    if list in kinds:
        return list(enumerate(list.__iter__(node)))
    if tuple in kinds:
        names = getattr(type(node), "_fields", None)
        names = names if type(names) is tuple and names else range(tuple.__len__(node))
        return list(zip(names, tuple.__iter__(node), strict=False))
    if UserDict in kinds or any(kind.__module__.startswith("tensordict.") for kind in kinds):
        held = attributes(node)
        inside: Any = held.get("data" if UserDict in kinds else "_tensordict")
        return list(dict.items(inside)) if dict in type(inside).__mro__ else None
    fields = getattr(type(node), "__dataclass_fields__", None)
    if type(fields) is not dict or any("shape" in kind.__dict__ for kind in kinds):
        return None
    held = attributes(node)
    if "shape" in held:
        return None
    named = [one.name for one in dataclasses.fields(type(node))]
    return [(name, held[name] if name in held else attribute(node, name)) for name in named]
