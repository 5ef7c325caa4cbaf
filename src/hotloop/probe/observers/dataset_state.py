"""What of a dataset can be told to have changed from one iterator over it to the next."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

_BARE: Final = (bool, int, float, str, bytes, type(None))
_NAMESPACES: Final = (("types", "SimpleNamespace"), ("argparse", "Namespace"))
_MAX_ATTRIBUTES: Final = 64
#: Items of a container that is compared by value, bytes of an array; how deep and how much is looked at.
_SMALL: Final = 64
_SMALL_BYTES: Final = 1 << 16
_DEPTH: Final = 4
_MOST: Final = 2000
#: Modules whose objects say nothing of samples, or are the same in all processes.
_APART: Final = frozenset(["_thread", "logging", "multiprocessing", "threading", "tqdm"])


def state_of(dataset: Any) -> dict[str, Any]:
    """What an object's attributes are: plain values by themselves, others by their identity, and what small
    containers, objects, arrays and tensors among them hold, by path.
    """
    found: dict[str, Any] = {}
    seen = {id(dataset)}
    ahead = [(name, value, 1) for name, value in _inside_of(dataset)]
    while ahead and len(found) < _MOST:
        path, value, depth = ahead.pop(0)
        found[path] = _said(value)
        if type(value) in _BARE or id(value) in seen:
            continue
        seen.add(id(value))
        found[f"{path} "] = _content(value)
        if depth < _DEPTH and type(value).__module__.partition(".")[0] not in _APART:
            ahead += [(f"{path}{name}", part, depth + 1) for name, part in _parts(value)]
    return found


def settings_of(dataset: Any, is_users: Callable[[str], bool]) -> dict[str, Any]:
    """The same of a dataset that its own samples change: of what it holds only the plain values of settings,
    ``cfg.horizon.steps``, which are objects of a class of the user's (``is_users`` tells by its file),
    namespaces and dictionaries of names.
    """
    first = _attributes(dataset)
    found = {name: _said(value) for name, value in first}
    ahead, known = [(f"{name}.", value, 1) for name, value in first], {id(dataset)}
    while ahead and len(found) < _MOST:
        path, one, depth = ahead.pop(0)
        if type(one) in _BARE or id(one) in known:
            continue
        known.add(id(one))
        for name, value in _settings(one, is_users):
            if type(value) in _BARE:
                found[f"{path}{name}"] = value
            elif depth < _DEPTH:
                ahead.append((f"{path}{name}.", value, depth + 1))
    return found


def _settings(one: Any, is_users: Callable[[str], bool]) -> list[tuple[str, Any]]:
    """What an object holds by name, where it may be settings; not a model, whose flags change in training."""
    kind = type(one)
    try:
        held = list(islice(one.items(), _MAX_ATTRIBUTES)) if kind is dict else _attributes(one)
    except RuntimeError:  # another thread puts something in
        return []
    if kind is not dict and (kind.__module__, kind.__name__) not in _NAMESPACES:
        nn, file = sys.modules.get("torch.nn"), getattr(sys.modules.get(kind.__module__), "__file__", None)
        if not isinstance(file, str) or not is_users(file) or (nn is not None and isinstance(one, nn.Module)):
            return []
    return held if all(type(name) is str for name, _ in held) else []


def changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Attributes that are others; what was or is None may be opened, or made, when it is needed."""
    names = [
        name.strip()
        for name, old in before.items()
        if old is not None and (new := now.get(name)) is not None and (type(old), old) != (type(new), new)
    ]
    return list(dict.fromkeys(names))


def _said(value: Any) -> Any:
    return value if type(value) in _BARE else _Identity(id(value))


def _content(value: Any) -> Any:
    """By which a change in place is seen of what others do not see too; None where by nothing."""
    module = type(value).__module__.partition(".")[0]
    try:
        if module == "torch" and hasattr(value, "_version"):
            return None if value.is_shared() else int(value._version)
        if module == "numpy" and value.flags.owndata and value.nbytes <= _SMALL_BYTES:
            return zlib.crc32(memoryview(value))
    except Exception:  # inference tensors have no version, not all arrays have bytes
        return None
    if type(value) in (list, tuple) and len(value) <= _SMALL:
        return tuple(one if type(one) in _BARE else None for one in value)
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) in (list, tuple, dict) and len(value) > _SMALL:
        return
    if type(value) in (list, tuple):
        yield from ((f"[{at}]", one) for at, one in enumerate(value) if type(one) not in _BARE)
    elif isinstance(value, dict):
        pairs = list(value.items())[:_SMALL]
        yield from ((f"[{key!r}]", one) for key, one in pairs if type(key) in _BARE)
    elif not isinstance(value, type):
        yield from ((f".{name}", one) for name, one in _inside_of(value))


def _inside_of(value: Any) -> Iterator[tuple[str, Any]]:
    """An object's attributes, and the plain ones of its classes."""
    own = dict(_attributes(value))
    yield from own.items()
    for kind in type(value).__mro__[:-1]:
        if kind.__module__.partition(".")[0] not in ("torch", "builtins"):
            for name, one in vars(kind).items():
                if type(one) in _BARE and name not in own and not name.startswith("__"):
                    yield name, one


def _attributes(value: Any) -> list[tuple[str, Any]]:
    try:
        attributes = getattr(value, "__dict__", None)
    except Exception:  # of the user's ``__getattr__``
        return []
    return list(attributes.items())[:_MAX_ATTRIBUTES] if isinstance(attributes, dict) else []


class _Identity(int):
    """An ``id()``."""
