"""What of a dataset can be told to have changed from one iterator over it to the next."""

from __future__ import annotations

import dis
import sys
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType, FunctionType, MethodType
from typing import Any, Final
from weakref import WeakKeyDictionary

from hotloop.probe.carrying import Making, making_of
from hotloop.probe.stored import attributes

#: Types of plain values.
BARE: Final = (bool, int, float, str, bytes, type(None))
_NAMESPACES: Final = (("types", "SimpleNamespace"), ("argparse", "Namespace"))
_MAX_ATTRIBUTES: Final = 64
#: Items of a container that is compared by value, bytes of an array; how deep and how much is looked at.
_SMALL: Final = 64
_SMALL_BYTES: Final = 1 << 16
_DEPTH: Final = 4
_MOST: Final = 2000
#: Dictionaries that hold what they give: others may read all of it when they are asked.
_DICTIONARIES: Final = (dict, defaultdict, OrderedDict, Counter)
#: Modules whose objects say nothing of samples, or are the same in all processes.
_APART: Final = frozenset(["_thread", "logging", "multiprocessing", "threading", "tqdm"])


def state_of(dataset: Any, into: bool = True) -> dict[str, Any]:
    """What an object's attributes are: plain values by themselves, others by their identity, and, with
    ``into``, what small containers, objects, arrays and tensors among them hold, by path.
    """
    found: dict[str, Any] = {}
    seen = {id(dataset)}
    ahead = deque((name, value, 1) for name, value in _inside_of(dataset))
    while ahead and len(found) < _MOST:
        path, value, depth = ahead.popleft()
        found[path] = said(value)
        if not into or type(value) in BARE or id(value) in seen:
            continue
        seen.add(id(value))
        found[f"{path} "] = _content(value)
        if depth < _DEPTH and type(value).__module__.partition(".")[0] not in _APART:
            ahead.extend((f"{path}{name}", part, depth + 1) for name, part in _parts(value))
    return found


def settings_of(dataset: Any, is_users: Callable[[str], bool], into: bool = True) -> dict[str, Any]:
    """The same of a dataset that its own samples change: of what it holds only the plain values of settings,
    ``cfg.horizon.steps``, which are objects of a class of the user's (``is_users`` tells by its file),
    namespaces and dictionaries of names.
    """
    first = _attributes(dataset)
    found = {name: said(value) for name, value in first}
    known = {id(dataset)}
    ahead = deque((f"{name}.", value, 1) for name, value in first if into)
    while ahead and len(found) < _MOST and len(known) < _MOST:
        path, one, depth = ahead.popleft()
        if type(one) in BARE or id(one) in known:
            continue
        known.add(id(one))
        for name, value in _settings(one, is_users):
            if type(value) in BARE:
                found[f"{path}{name}"] = value
            elif depth < _DEPTH:
                ahead.append((f"{path}{name}.", value, depth + 1))
    return found


def _settings(one: Any, is_users: Callable[[str], bool]) -> list[tuple[str, Any]]:
    """What an object holds by name, where it may be settings; not a model, whose flags change in training."""
    kind = type(one)
    held = _first(one, _MAX_ATTRIBUTES) if kind is dict else _attributes(one)
    if kind is not dict and (kind.__module__, kind.__name__) not in _NAMESPACES:
        nn, file = sys.modules.get("torch.nn"), getattr(sys.modules.get(kind.__module__), "__file__", None)
        is_model = nn is not None and issubclass(kind, nn.Module)
        if is_model or not isinstance(file, str) or not is_users(file):
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


def told_by_script(dataset: Any, names: list[str], *, workers: bool) -> list[str]:
    """Those of the changed names that the script may have given another value, and that samples are made of.

    Samples made in the training process write to the dataset too: a counter, a buffer, the shard at hand.
    """
    making = making_of(type(dataset))
    if making is None:
        return names
    own = attributes(dataset)
    all_read = making.handed_on or _reads_unseen(own, making)
    found = []
    for name in names:
        first = name.partition(".")[0].partition("[")[0]
        if first in own and first not in making.reads and not all_read:
            continue
        by_samples = first in making.writes and first in _assigned(type(dataset), making)
        if not workers and name == first and by_samples and name not in making.carried:
            continue
        found.append(name)
    return found


def _reads_unseen(own: dict[str, Any], making: Making) -> bool:
    """Whether samples may read what their code does not name: by any name, or by a function of the
    dataset's that it was given.
    """
    held = [part for value in own.values() for part in _held_in(value)]
    given = any(type(one) is MethodType or (type(one) is FunctionType and one.__closure__) for one in held)
    return given or "__dict__" in making.reads


def _held_in(value: Any) -> list[Any]:
    if type(value) in (list, tuple):
        return list(value[:_SMALL])
    return [one for _, one in _first(value, _SMALL)] if type(value) in _DICTIONARIES else [value]


_assigning: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()


def _assigned(kind: type, making: Making) -> frozenset[str]:
    """Names that the methods by which samples are made assign to: what is given to a function, or has another
    name too, does not become another value by that.
    """
    if kind not in _assigning:
        methods = {"__getitem__", "__getitems__", "__call__", "forward", *making.reads}
        ahead = [
            function.__code__
            for one in kind.__mro__
            for name, member in vars(one).items()
            if name in methods and isinstance(function := _function(member), FunctionType)
        ]
        found = set()
        while ahead:
            code = ahead.pop()
            found |= {str(one.argval) for one in dis.get_instructions(code) if one.opname == "STORE_ATTR"}
            ahead += [one for one in code.co_consts if isinstance(one, CodeType)]
        _assigning[kind] = frozenset(found)
    return _assigning[kind]


def _function(member: Any) -> Any:
    function = member.fget if isinstance(member, property) else member
    while isinstance(function, FunctionType) and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def said(value: Any) -> Any:
    """A plain value by itself, another by its identity."""
    return value if type(value) in BARE else _Identity(id(value))


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
        return tuple(one if type(one) in BARE else None for one in value)
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) in (list, tuple, dict) and len(value) > _SMALL:
        return
    if type(value) in (list, tuple):
        yield from ((f"[{at}]", one) for at, one in enumerate(value) if type(one) not in BARE)
    elif type(value) in _DICTIONARIES:
        yield from ((f"[{key!r}]", one) for key, one in _first(value, _SMALL) if type(key) in BARE)
    elif not issubclass(type(value), type):
        yield from ((f".{name}", one) for name, one in _inside_of(value))


def _inside_of(value: Any) -> Iterator[tuple[str, Any]]:
    """An object's attributes, and the plain ones of its classes."""
    own = dict(_attributes(value))
    yield from own.items()
    for kind in type(value).__mro__[:-1]:
        if kind.__module__.partition(".")[0] not in ("torch", "builtins"):
            for name, one in list(vars(kind).items()):
                if type(one) in BARE and name not in own and not name.startswith("__"):
                    yield name, one


def _attributes(value: Any) -> list[tuple[str, Any]]:
    return _first(attributes(value), _MAX_ATTRIBUTES)


def _first(held: dict[Any, Any], most: int) -> list[tuple[Any, Any]]:
    """The first items, without asking a class of the script's for them."""
    try:
        return list(islice(dict.items(held), most))
    except RuntimeError:  # another thread puts something in
        return []


class _Identity(int):
    """An ``id()``."""
