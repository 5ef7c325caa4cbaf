"""Pickles that hold data and the names of classes of samples, opened without running what else they ask for.

A bake may come from somebody else. Its structure and records need lists, numbers, text and the names of a few
classes; a pickle can ask for any callable of any module, call it, and write into what it names. So whatever
is named becomes a name here, that can do nothing, and afterwards the structure is built of the names that
are known: dictionaries, lists, tuples, and named tuples that are imported by then. As in ``torch.load``,
the rest is opened only for those who say that they trust it.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import OrderedDict
from typing import Any, NamedTuple

from hotloop.feed.errors import NotPlainError
from hotloop.feed.tree import LEAF, Branch, Leaf, Structure

#: The words that every refusal ends with.
HINT = "if you trust who made it: Baked(path, trust=True)"

_KNOWN = {(one.__module__, one.__qualname__): one for one in (dict, list, tuple, OrderedDict)}


class _Name(NamedTuple):
    """What a pickle names. It is no callable: a pickle that calls what it names fails."""

    module: str
    name: str


def loads(data: bytes | memoryview, trust: bool) -> Any:
    """Like ``pickle.loads``; without ``trust`` only data and structures of known classes.

    Raises:
        NotPlainError: there is something else in it.
    """
    if trust:
        return pickle.loads(data)  # nosec B301
    try:
        return _built(_Plain(io.BytesIO(data)).load())
    except (pickle.UnpicklingError, TypeError, AttributeError) as error:
        if _Name.__name__ not in str(error):  # damaged
            raise
        raise NotPlainError("it holds an object, which only code opens", hint=HINT) from error


class _Plain(pickle.Unpickler):
    """Each of its own has stand-ins for the two classes of a structure; nobody else has those."""

    _stand_ins: dict[tuple[str, str], type] | None = None

    def find_class(self, module: str, name: str) -> Any:
        if self._stand_ins is None:
            self._stand_ins = {(one.__module__, one.__qualname__): _stand_in(one) for one in (Leaf, Branch)}
        return self._stand_ins.get((module, name)) or _Name(module, name)


class _Node(tuple[Any, ...]):
    """A leaf or a branch before it is one."""

    __slots__ = ()
    stands_for: type = Leaf


def _stand_in(of: type) -> type:
    made = type(of.__name__, (_Node,), {"__slots__": (), "stands_for": of})
    made.__new__ = lambda cls, *parts: tuple.__new__(cls, parts)  # type: ignore[method-assign, assignment]
    return made


def _built(found: Any) -> Any:
    """The structure that nodes make, and what holds it; plain data as it is."""
    if isinstance(found, _Node):
        return _structure(found)
    if isinstance(found, _Name):
        raise NotPlainError(f"it holds {found.module}.{found.name}", hint=HINT)
    if type(found) in (tuple, list):
        return type(found)(map(_built, found))
    return found


def _structure(node: Any) -> Structure:
    if not isinstance(node, _Node):
        raise NotPlainError("it holds a structure that is none", hint=HINT)
    if type(node).stands_for is Leaf:
        return LEAF
    kind, named, names, children = node
    if not isinstance(named, _Name) or not all(
        one is None or isinstance(one, str | int | float | bytes) for one in names
    ):
        raise NotPlainError("it holds a structure that is none", hint=HINT)
    return Branch(str(kind), _class(named), tuple(names), tuple(map(_structure, children)))


def _class(named: _Name) -> type:
    if found := _KNOWN.get(named):
        return found
    words = f"{named.module}.{named.name}"
    if named.module not in sys.modules:
        hint = f"import {named.module}, which defines it, or, {HINT}"
        raise NotPlainError(f"the samples' own class {words} is not imported", hint=hint)
    known = vars(sys.modules[named.module]).get(named.name)
    # As ``NamedTuple`` and ``namedtuple`` make them: building one runs nothing else.
    if not (isinstance(known, type) and known.__bases__ == (tuple,) and hasattr(known, "_fields")):
        raise NotPlainError(f"it holds {words}, which is no named tuple", hint=HINT)
    return known
