"""What an object holds at a moment, by path, and what of it is other at another moment."""

from __future__ import annotations

import contextlib
import sys
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from ctypes import c_char
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from hotloop.state.code import beside
from hotloop.state.generators import is_generator
from hotloop.state.identity import is_own
from hotloop.state.stored import attribute, attributes, is_array, is_tensor, slots

PLAIN: Final = frozenset([bool, int, float, complex, str, bytes, type(None)])
#: Libraries whose objects say nothing of samples, or are the same in all processes.
_APART: Final = frozenset(["_thread", "logging", "multiprocessing", "threading", "tqdm", "hotloop"])
#: Of larger arrays and lists so many bytes or items are compared; of many such lists fewer items of each.
_SAMPLED: Final = 4096
_ITEMS: Final = 64
#: Inference tensors have no version, not all arrays have bytes. What a signal handler raises goes on.
_REFUSED: Final = (RuntimeError, TypeError, ValueError, AttributeError, BufferError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is looked at. ``exact`` enters models, follows the code of the user's classes, and keeps
    alive what cannot be referred to weakly. The states of generators of random numbers are no part of it.
    """

    depth: int
    values: int
    items: int  # of a container that is compared item by item
    array_bytes: int  # of an array that is compared as a whole
    seconds: float
    exact: bool = False


#: A look that the probe takes while the script trains.
QUICK: Final = Limits(depth=4, values=2_000, items=64, array_bytes=1 << 16, seconds=0.1)
#: A look that decides whether a change of the run stays exact.
EXACT: Final = Limits(depth=64, values=20_000, items=1_000, array_bytes=1 << 20, seconds=1.0, exact=True)


class Entry(NamedTuple):
    """A value: what it is (a plain value with its type, the identity of another), and what it contains
    (None: unknown).
    """

    what: Any
    content: Any = None


class Snapshot:
    """The entries of an object by path (``cfg.horizon.steps``, ``rows[2]``)."""

    __slots__ = ("_held", "_refs", "complete", "entries", "reached")

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.complete = True
        self.reached: set[int] = set()  # identities
        self._refs: list[weakref.ref[Any]] = []  # an identity says nothing once its object is gone
        self._held: list[Any] = []

    def __eq__(self, other: object) -> bool:
        """Whether nothing that was looked at differs."""
        if not isinstance(other, Snapshot) or self.entries != other.entries:
            return False
        return all(ref() is not None for one in (self, other) for ref in one._refs)

    __hash__ = None  # type: ignore[assignment]

    def made(self, later: Snapshot) -> Snapshot:
        """This look with what a later one finds where None was: a file, an index, made when first needed."""
        none = [path for path, one in self.entries.items() if one.what[0] is type(None)]
        made = tuple(
            path for path in none if later.entries.get(path, self.entries[path]).what[0] is not type(None)
        )
        below = tuple(path + end for path in made for end in ".[ ")
        new = {path: one for path, one in later.entries.items() if path in made or path.startswith(below)}
        found = Snapshot()
        found.entries, found._refs, found._held = self.entries | new, [*self._refs], [*self._held]
        return found

    def objects(self) -> Iterator[Any]:
        """What is no plain value, as far as it is still there."""
        yield from (one for ref in self._refs if (one := ref()) is not None)
        yield from self._held

    def keep(self, value: Any, exact: bool) -> None:
        """Know this object again."""
        self.reached.add(id(value))
        try:
            self._refs.append(weakref.ref(value))
        except TypeError:
            if exact:
                self._held.append(value)


def snapshot(root: Any, limits: Limits = QUICK) -> Snapshot:
    """What an object holds, by reading memory only."""
    return _Walk(limits).walk(root)


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """Paths whose values differ. What was or is None may be opened, or made, when it is needed first."""
    found = []
    for path, old in before.entries.items():
        new = after.entries.get(path)
        if new is None or new == old or type(None) in (old.what[0], new.what[0]):
            continue
        if old.what != new.what or None not in (old.content, new.content):
            found.append(path)
    return found


def reached(root: Any, wanted: Callable[[Any], Any], limits: Limits = QUICK) -> list[Any]:
    """What an object is or holds for which ``wanted`` says yes."""
    walk = _Walk(limits, wanted)
    walk.walk(root)
    return walk.found


def generators(root: Any, limits: Limits = QUICK) -> list[Any]:
    """The generators of random numbers that an object holds."""
    return reached(root, is_generator, limits)


class _Walk:
    """One walk, breadth first; one that looks for something does not look into arrays."""

    def __init__(self, limits: Limits, wanted: Callable[[Any], Any] | None = None) -> None:
        self._limits = limits
        self._wanted = wanted
        self._taken = Snapshot()
        self._ahead: deque[tuple[str, Any, int]] = deque()
        self._items = 0  # of lists that were compared
        self.found: list[Any] = []

    def walk(self, root: Any) -> Snapshot:
        """Everything that is reached from an object."""
        taken, limits, ahead = self._taken, self._limits, self._ahead
        taken.reached.add(id(root))
        self._look(root)
        self._enter("", root, 0)
        deadline = perf_counter() + limits.seconds
        while ahead:
            if len(taken.entries) >= limits.values or perf_counter() > deadline:
                taken.complete = False
                break
            path, value, depth = ahead.popleft()
            content = self._content(value) if self._wanted is None else None
            taken.entries[path] = Entry((type(value), id(value)), content)
            if id(value) not in taken.reached:
                taken.keep(value, limits.exact)
                self._look(value)
                if depth < limits.depth and type(value).__module__.partition(".")[0] not in _APART:
                    self._enter(path, value, depth + 1)
        return taken

    def _look(self, value: Any) -> None:
        if self._wanted is not None and self._wanted(value):
            self.found.append(value)

    def _enter(self, path: str, value: Any, depth: int) -> None:
        exact, most = self._limits.exact, self._limits.items
        container = _container(value)
        if container in (list, tuple, deque):
            if container.__len__(value) <= most:
                self._put(path, ((f"[{at}]", one) for at, one in enumerate(container.__iter__(value))), depth)
        elif container is dict:
            if dict.__len__(value) <= most:
                with contextlib.suppress(RuntimeError):  # another thread puts something in
                    items = list(dict.items(value))
                    named = [(f"[{key!r}]", one) for key, one in items if type(key) in PLAIN]
                    self._put(path, named, depth, plain=True)
        elif container is None and (exact or not _is_code_or_model(value)):
            names = [*islice(list(attributes(value).items()), most), *slots(value)]
            dot = "." if path else ""
            self._put(path, ((f"{dot}{name}", one) for name, one in names), depth, plain=True)
            self._put(path, _class_values(value, {name for name, _ in names}, dot), depth, plain=True)
        if exact:
            others = enumerate(beside(value))
            self._put(path, ((f" code {at}", one) for at, one in others), depth, plain=True)

    def _put(self, path: str, named: Any, depth: int, *, plain: bool = False) -> None:
        entries, ahead = self._taken.entries, self._ahead
        for name, one in named:
            if type(one) not in PLAIN:
                ahead.append((path + name, one, depth))
            elif plain:
                entries[path + name] = Entry((type(one), _alike(one)))

    def _content(self, value: Any) -> Any:
        """By which a change in place is seen of what others do not see too."""
        container = _container(value)
        if container in (list, tuple, deque):
            length = container.__len__(value)
            most = _SAMPLED if self._items < self._limits.values else _ITEMS
            step = 1 if length <= self._limits.items else max(1, length // most)
            some = (
                [*islice(container.__iter__(value), 0, None, step)]
                if container is deque
                else (container.__getitem__(value, slice(None, None, step)))
            )
            self._items += len(some)
            return length, (*map(type, some),), tuple(map(_alike, some))
        if container in (set, frozenset):
            return container.__len__(value), hash(frozenset(id(one) for one in container.__iter__(value)))
        if container is dict:
            return (dict.__len__(value), None) if self._limits.exact else None
        with contextlib.suppress(*_REFUSED):
            if is_tensor(value):
                return self._of_tensor(value)
            if is_array(value):
                return self._of_array(value)
        return None

    def _of_tensor(self, value: Any) -> Any:
        torch = sys.modules["torch"]
        with torch._C.DisableTorchFunction():
            if torch.Tensor.is_shared(value):
                return None
            version = attribute(value, "_version")
            if type(value) is not torch.Tensor or value.device.type != "cpu":
                return version, None
            size, address = value.numel() * value.element_size(), value.data_ptr()
            if not size or not address or not value.is_contiguous():
                return version, None
        # Who writes by its memory leaves the version as it is. No operation of torch's: profilers see those.
        return version, self._of_bytes(memoryview((c_char * size).from_address(address)).cast("B"))

    def _of_array(self, value: Any) -> Any:
        if type(value).__module__ != "numpy" or value.dtype.hasobject or _is_shared(value):
            return None
        if not value.flags.c_contiguous or not value.nbytes:
            return value.shape, None
        return self._of_bytes(memoryview(value).cast("B"))

    def _of_bytes(self, view: memoryview) -> int:
        if len(view) <= self._limits.array_bytes:
            return zlib.crc32(view)
        return zlib.crc32(bytes(view[:: max(1, len(view) // _SAMPLED) | 1]))


def _alike(value: Any) -> Any:
    return None if type(value) not in PLAIN else value if value == value else "nan"


def _container(value: Any) -> Any:
    """The container of Python's own that a value is, or is derived from."""
    kinds = type(value).__mro__
    return next((one for one in (dict, list, tuple, set, frozenset, deque) if one in kinds), None)


def _is_code_or_model(value: Any) -> bool:
    kinds, nn = type(value).__mro__, sys.modules.get("torch.nn")
    return not {type, ModuleType, FunctionType}.isdisjoint(kinds) or (nn is not None and nn.Module in kinds)


def _class_values(value: Any, known: set[str], dot: str) -> Iterator[tuple[str, Any]]:
    """The plain values of the user's classes."""
    for kind in type(value).__mro__[:-1]:
        if is_own(kind.__module__):
            for name, one in list(vars(kind).items()):
                if type(one) in PLAIN and name not in known and not name.startswith("__"):
                    yield f"{dot}{name}", one


def _is_shared(array: Any) -> bool:
    """Whether what is written to an array is seen by processes that were forked before."""
    below = array
    while type(below).__module__ == "numpy" and getattr(below, "base", None) is not None:
        below = below.base
    return type(below).__module__.startswith(("multiprocessing", "ctypes", "_ctypes"))
