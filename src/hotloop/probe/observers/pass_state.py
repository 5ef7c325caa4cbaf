"""What a dataset is like at a moment, to tell what the script changes in it while it is gone through."""

from __future__ import annotations

import contextlib
import zlib
from itertools import islice
from typing import Any, Final

from hotloop.probe.carrying import Making, making_of, writes_of
from hotloop.probe.identity import is_own
from hotloop.probe.observers.dataset_state import BARE, changed, said

_MAX_ATTRIBUTES: Final = 64
#: Objects beneath a dataset that are looked into, how deep, and items of a list among them.
_MAX_OBJECTS: Final = 32
_DEPTH: Final = 3
_MAX_ITEMS: Final = 16
#: Bytes of an array, and items of a container, whose values are compared.
_SAMPLED: Final = 2**12
_SAMPLED_ITEMS: Final = 1000
_MOST_ITEMS: Final = 10_000
#: Libraries whose transforms hold their settings, and nothing that using them changes.
_SETTINGS: Final = ("torchvision.transforms",)


class DatasetState:
    """The attributes of a dataset, and of the user's own objects and transforms that it holds.

    ``values`` by name (``crop``, ``transform.size``): plain values by themselves, others by their identity.
    ``contents`` of the dataset's own arrays and containers: a number made of some of their values.
    """

    __slots__ = ("contents", "owners", "values")

    def __init__(self, dataset: Any, *, into: bool = True) -> None:
        self.values: dict[str, Any] = {}
        self.contents: dict[str, Any] = {}
        self.owners: dict[str, type] = {}  # of each nested name: the class of the object that has it
        for path, owner in _objects(dataset) if into else [("", dataset)]:
            for name, value in _attributes(owner):
                self.values[path + name] = said(value)
                if path:
                    self.owners[path + name] = type(owner)
                elif into and is_private(value):
                    self.contents[name] = _content(value)

    def refilled(self, now: DatasetState) -> list[str]:
        """Arrays and containers that are the same objects, with other values."""
        return [
            name
            for name, old in self.contents.items()
            if self.values[name] == now.values.get(name)
            and old is not None
            and (new := now.contents.get(name)) is not None
            and old != new
        ]


def written(dataset: Any, before: DatasetState, now: DatasetState) -> list[str]:
    """Of what changed while samples were made here, that which other workers would not know: what the loop
    wrote and samples are made of, and what they keep for the next sample.

    What making a sample writes by itself (a cache, a counter that decides nothing) is left out.
    """
    names = [*changed(before.values, now.values), *before.refilled(now)]
    making = making_of(type(dataset)) if names else None
    if making is None:
        return []
    found = []
    for name in names:
        owner = before.owners.get(name)
        of = making if owner is None else making_of(owner)
        last = name.rpartition(".")[2]
        if of is None or (owner is not None and _sets(making, name, owner)):
            continue
        looped = last in of.reads and last not in of.writes and not making.handed_on
        if last in of.carried or looped:
            found.append(name)
    return found


def _sets(making: Making, name: str, owner: type) -> bool:
    """Whether making a sample may set an attribute of an object that the dataset holds, by itself or by a
    method of the object.
    """
    path, _, last = name.rpartition(".")
    held = path.partition(".")[0].partition("[")[0]
    for root, done in making.beneath:
        if root == held and (done in ("", last) or path != held or last in writes_of(owner, done)):
            return True
    return False


def _objects(dataset: Any) -> list[tuple[str, Any]]:
    """A dataset and what it holds of the user's own objects and of transforms, each with its path."""
    found: list[tuple[str, Any]] = [("", dataset)]
    seen = {id(dataset)}
    ahead, depth = found, 0
    while ahead and depth < _DEPTH:
        inner = [
            (f"{path}{name}.", value)
            for path, owner in ahead
            for name, value in _inside(owner)
            if id(value) not in seen and _is_looked_into(type(value))
        ]
        seen.update(id(value) for _, value in inner)
        found = (found + inner)[:_MAX_OBJECTS]
        ahead, depth = inner, depth + 1
    return found


def _inside(owner: Any) -> list[tuple[str, Any]]:
    found = []
    for name, value in _attributes(owner):
        if type(value) in (list, tuple):
            found += [(f"{name}[{at}]", each) for at, each in enumerate(value[:_MAX_ITEMS])]
        elif type(value) not in BARE:
            found.append((name, value))
    return found


def _is_looked_into(kind: type) -> bool:
    return kind not in BARE and (kind.__module__.startswith(_SETTINGS) or is_own(kind.__module__))


def _attributes(obj: Any) -> list[tuple[str, Any]]:
    attributes = getattr(obj, "__dict__", None)
    if not isinstance(attributes, dict) or isinstance(obj, type):
        return []
    first = list(islice(list(attributes.items()), _MAX_ATTRIBUTES))
    return [(name, value) for name, value in first if isinstance(name, str)]


def _content(value: Any) -> Any:
    """A number that is another one once many values of an array or a container were changed in place; None
    where that is not looked at.
    """
    kind = type(value)
    module = str(kind.__module__)
    with contextlib.suppress(Exception):  # inference tensors have no version, some arrays have no bytes
        if module.partition(".")[0] == "torch":
            return int(value._version) if kind.__name__ == "Tensor" else None
        if module == "numpy" and kind.__name__ == "ndarray":
            return _sampled(value)
        if kind in (list, tuple) and value:
            return hash(tuple(map(_told, value[:: _step(len(value), _SAMPLED_ITEMS)])))
        if kind is dict and 0 < len(value) <= _MOST_ITEMS:
            items = islice(list(value.items()), 0, None, _step(len(value), _SAMPLED_ITEMS))
            return len(value), hash(tuple((_told(key), _told(each)) for key, each in items))
    return None


def is_private(value: Any) -> bool:
    """Whether what is written to a value later is not seen by processes that were forked before."""
    kind = type(value)
    module = str(kind.__module__)
    if module.startswith(("multiprocessing", "ctypes")):
        return False
    if module.partition(".")[0] == "torch":
        with contextlib.suppress(Exception):
            return not value.is_shared()
        return True
    below = value
    while type(below).__module__ == "numpy" and getattr(below, "base", None) is not None:
        below = below.base
    return below is value or type(below).__module__ == "numpy" or isinstance(below, bytes | bytearray)


def _sampled(array: Any) -> int | None:
    if array.dtype.kind not in "biufc" or not array.flags.c_contiguous or not array.nbytes:
        return None
    view = memoryview(array).cast("B")
    return zlib.crc32(bytes(view[:: _step(len(view), _SAMPLED)]))


def _step(length: int, most: int) -> int:
    """Odd, so that it comes by every byte of a number."""
    return max(1, length // most) | 1


def _told(value: Any) -> Any:
    return value if type(value) in BARE else id(value)
