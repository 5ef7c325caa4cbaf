"""What a function reads besides its arguments: values of modules, attributes of objects, and what those hold.

A short look at what its code names is taken at each call, a long one at all that is reached from there when
an epoch begins, and as often besides as the time allows.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import os
import sys
import sysconfig
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, Final

from hotloop.remedy.live import closed, packed
from hotloop.remedy.live.state import State

#: Types that random numbers are drawn from, of torch, numpy and Python.
GENERATORS: Final = ("Generator", "RandomState", "Random")
#: Of values known by their identity more are other ones in each call.
MOST_OBJECTS: Final = 256
#: Containers up to this length are compared by content, larger ones by which they are and their length.
_SMALL: Final = 32
_SMALL_BYTES: Final = 1024
_LOOKED_AT: Final = 16
_MOST_REACHED: Final = 64
_DEPTH: Final = 3
#: The part of the time that long looks may take besides those at the beginning of an epoch.
_LOOK_PART: Final = 0.02

_LIBRARIES: Final = tuple(map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
_CODE: Final = (
    ModuleType, type, FunctionType, BuiltinFunctionType, staticmethod, classmethod, property,
    functools.cached_property, MemberDescriptorType, GetSetDescriptorType, WrapperDescriptorType,
)  # fmt: skip
_CONTAINERS: Final = (list, tuple, dict, set, frozenset, deque)
#: By these, names are read that the code does not say.
_BY_ANY_NAME: Final = frozenset(["getattr", "vars", "__dict__", "attrgetter", "eval", "exec", "globals"])
_ENVIRONMENT: Final = frozenset(["environ", "getenv", "environb", "getenvb"])
#: Methods that code calls without naming them: of an object that was met, and of a class that it calls.
_SILENT: Final = frozenset([
    "__call__", "forward", "__getitem__", "__contains__", "__len__", "__iter__", "__getattr__",
])  # fmt: skip
_MAKING: Final = frozenset(["__init__", "__new__", "__post_init__"])
_OF_ITSELF: Final = frozenset(["__getattr__"])
#: Read by what a module calls, under no name of the user's.
_TRAINING: Final = "training"
#: What gives other values each time, where no generator shows it.
_UNSEEN: Final = frozenset([
    "secrets", "urandom", "getrandom", "SystemRandom", "uuid1", "uuid4", "token_bytes", "token_hex",
    "randbelow", "randbits",
])  # fmt: skip
#: What is another thing at another time, or in another process.
_ELSEWHERE: Final = frozenset([
    "get_worker_info", "getpid", "get_rank", "get_node_local_rank", "current_process", "now", "utcnow",
    "today",
])  # fmt: skip
#: What does where it is given no seed.
_SEEDED: Final = frozenset(["default_rng", "RandomState", "SeedSequence", "Random", "PCG64"])
#: Between what is called and the call, where it is given nothing.
_BETWEEN: Final = frozenset(["PRECALL", "PUSH_NULL", "CACHE", "EXTENDED_ARG"])


class Unfit(Exception):  # noqa: N818 - an answer, not a failure
    """Why results cannot be kept."""


class Reads:
    """What a function reads. ``is_closed`` is False once that is anything known by its identity."""

    def __init__(self, function: FunctionType) -> None:
        self.is_closed = bool(closed.reached(function))
        self._function = function
        self._kinds: dict[type, None] = {}  # the user's classes whose objects were met
        self._held: dict[int, tuple[Any, str]] = {}
        self._states: dict[int, State] = {}
        self._objects = 0
        self._pid, self._version, self._next = os.getpid(), "", 0.0
        self._reached: list[Any] | None = None
        self._follow()
        self._global_state = State(*self._global_values())

    @property
    def is_used(self) -> bool:
        """Whether anything was met that may change."""
        return bool(self._states) or not self.is_closed

    def know(self, objects: Iterable[Any]) -> None:
        """Objects, with what they hold, that this process and those forked from it have in common."""
        given = list(objects)
        spaces = [vars(sys.modules["__main__"]), self._function.__globals__]
        spaces += [closed.attribute(one, "__globals__", {}) for one in given]
        given += [value for values in spaces for value in values.values() if is_own(type(value))]
        given += self._global_values()
        todo = [(one, 0) for one in given]
        while todo and len(self._held) < 4 * MOST_OBJECTS:
            one, depth = todo.pop()
            if isinstance(one, (*closed.PLAIN, type, FunctionType, ModuleType)) or id(one) in self._held:
                continue
            self._hold(one, f"object {len(self._held)}", met=self._is_of(type(one)))
            if depth < _DEPTH:
                inner = list(one) if type(one) in (list, tuple) and len(one) <= _SMALL else []
                todo += [
                    (each, depth + 1) for each in (*closed.attribute(one, "__dict__", {}).values(), *inner)
                ]

    def named(self, value: Any) -> str:
        """A name for what is known by its identity, which stays its own. Raises Unfit."""
        self.is_closed = False  # what it holds may change
        known = self._held.get(id(value))
        if known is None:
            self._objects += 1
            if self._objects > MOST_OBJECTS:
                raise Unfit("it is given other objects in each call")
            known = self._hold(value, f"{os.getpid()} object {len(self._held)}", met=True)
        return known[1]

    def told(self, value: Any) -> tuple[Any, ...]:
        """An object that is given, by its name and what is read of it. Raises Unfit."""
        version = value._version if packed.has_memory(value) and not value.is_inference() else 0
        return (self.named(value), version, list(self._attributes(value, 0)))

    def around(self) -> Iterator[Any]:
        """What tells of the values of modules, and of all that was met, whether they are as they were."""
        yield self._latest()
        for values, name in self._globals:
            value = values.get(name)
            yield self._brief(value)
            if not isinstance(value, closed.PLAIN):
                yield from self._attributes(value, 1)
        for value in self._bound():
            yield self._brief(value)
        for values, name, code in self._code:
            if values.get(name) is not code:
                yield name, self.named(values.get(name))
        if self._names & _ENVIRONMENT:
            yield sorted(os.environ.items())

    def settings(self, given: Iterable[Any]) -> Iterator[Any]:
        """The plain values that are read in objects and small dictionaries, of modules and ``given``."""
        for values, name in self._globals:
            yield from self._settings(values.get(name), 0)
        for one in given:
            yield from self._settings(one, 0)

    def _settings(self, value: Any, depth: int) -> Iterator[Any]:
        if isinstance(value, closed.PLAIN):
            yield value
        elif depth > _DEPTH:
            return
        elif isinstance(value, dict):
            for name, one in value.items() if len(value) <= _SMALL else ():
                yield str(name)
                yield from self._settings(one, depth + 1)
        else:
            for name, one in self._read(value):
                yield name
                yield from self._settings(one, depth + 1)

    def look(self) -> None:
        """See whether anything that was met, or is reached from there, is another: then all is."""
        begun = time.perf_counter()
        self._pid = os.getpid()
        changed = False
        for key, (value, _) in self._held.items():
            before = self._states.get(key)
            parts = self._parts(value)
            if not parts and before is None:
                continue
            self._states[key] = now = State(*parts)
            changed |= before is not None and now != before
        now = State(*self._global_values())
        changed |= now != self._global_state
        self._global_state = now
        if changed:
            self._version = f"{self._pid} {begun}"
        self._reached = None
        ended = time.perf_counter()
        self._next = ended + (ended - begun) / _LOOK_PART

    def generators(self) -> list[Any]:
        """Those of random numbers among all that is reached."""
        return [one for one in self._all_reached() if type(one).__name__ in GENERATORS]

    def arrays(self) -> list[Any]:
        """The arrays and tensors among all that is reached."""
        return [one for one in self._all_reached() if packed.has_memory(one)]

    def _latest(self) -> str:
        if self._draws:
            raise Unfit(self._draws)
        if self._pid != os.getpid() or time.perf_counter() >= self._next:
            self.look()
        return self._version

    def _all_reached(self) -> list[Any]:
        if self._reached is None:
            found = [one for state in (self._global_state, *self._states.values()) for one in state.reached()]
            found += [one for one, _ in self._held.values()]
            unique = {id(one): one for one in found}.values()
            self._reached = [
                one for one in unique if type(one).__name__ in GENERATORS or packed.has_memory(one)
            ]
        return self._reached

    def _hold(self, value: Any, name: str, *, met: bool) -> tuple[Any, str]:
        known = self._held[id(value)] = value, name
        if met:
            self._meet(type(value))
        if parts := self._parts(value):
            self._states[id(value)] = State(*parts)
        self._reached = None
        return known

    def _meet(self, kind: type) -> None:
        """Follow the code into a class of the user's: what it names is read too."""
        if kind in self._kinds or not is_own(kind):
            return
        self._kinds |= dict.fromkeys(one for one in kind.__mro__ if is_own(one))
        before = self._names, len(self._functions)
        self._follow()
        if before != (self._names, len(self._functions)):
            known = ((key, self._parts(one)) for key, (one, _) in self._held.items())
            self._states = {key: State(*parts) for key, parts in known if parts}
            self._global_state = State(*self._global_values())

    def _is_of(self, kind: type) -> bool:
        """Whether the function is a method of a class."""
        owner = self._function.__globals__.get(self._function.__qualname__.rpartition(".")[0])
        return isinstance(owner, type) and issubclass(kind, owner)

    def _follow(self) -> None:
        """What the code names, as far as it is known which code is reached."""
        functions = reached(self._function, self._kinds)
        self._draws = next(filter(None, map(draws, functions)), "")
        self._names = {name for one in functions for code in codes(one) for name in code.co_names}
        self._names.add(_TRAINING)
        self._any = bool(self._names & _BY_ANY_NAME)
        read = [
            (home, name) for one in functions for home, names in homes(one, self._kinds) for name in names
        ]
        unique = {(id(home), name): (home, name) for home, name in read}.values()
        self._globals = [(home, name) for home, name in unique if not is_code(home[name])]
        self._code = [(home, name, home[name]) for home, name in unique if is_code(home[name])]
        self._functions = functions

    def _global_values(self) -> list[Any]:
        return [*(values.get(name) for values, name in self._globals), *self._bound()]

    def _bound(self) -> Iterator[Any]:
        """What functions have as defaults, and close over."""
        for one in self._functions:
            yield from (*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values())
            for cell in one.__closure__ or ():
                with contextlib.suppress(ValueError):  # not filled yet
                    yield cell.cell_contents

    def _parts(self, value: Any) -> list[Any]:
        """What of an object the code may read."""
        if isinstance(value, FunctionType | functools.partial) or packed.has_memory(value):
            return [value]
        return [part for _, part in self._read(value)]

    def _read(self, value: Any) -> Iterator[tuple[str, Any]]:
        held = closed.attribute(value, "__dict__")
        if type(held) is dict and not is_code(value):
            for name in held.keys() if self._any else self._names & held.keys():
                yield name, held[name]
        for kind in type(value).__mro__:
            if kind in self._kinds:
                slots = vars(kind).get("__slots__", ())
                for name in (slots,) if isinstance(slots, str) else slots:
                    if self._any or name in self._names:
                        yield name, closed.attribute(value, name)

    def _attributes(self, one: Any, depth: int, seen: set[int] | None = None) -> Iterator[Any]:
        seen = set() if seen is None else seen
        for name, value in () if id(one) in seen else self._read(one):
            seen.add(id(one))
            yield name, self._brief(value)
            if depth < _DEPTH and not isinstance(value, closed.PLAIN):
                yield from self._attributes(value, depth + 1, seen)

    def _brief(self, value: Any, depth: int = 0) -> Any:
        """A value that is read, in as few words as tell when it changes."""
        if isinstance(value, closed.PLAIN):
            return value
        if type(value) in _CONTAINERS:
            if len(value) > _SMALL or depth > _DEPTH:
                return self.named(value), len(value)
            pairs = value.items() if type(value) is dict else enumerate(value)
            return [(name, self._brief(each, depth + 1)) for name, each in pairs]
        if packed.is_tensor(value):
            return self.named(value), 0 if value.is_inference() else value._version
        if packed.is_array(value):
            if value.nbytes <= _SMALL_BYTES:
                return value.tobytes()
            return self.named(value), value.flat[:: max(1, value.size // _LOOKED_AT)].tobytes()
        return self.named(value)


def reached(function: FunctionType, kinds: Iterable[type] = ()) -> list[FunctionType]:
    """The function and those of the user's that its code names, by their names in modules and classes; of
    the classes that it calls, or whose objects it meets, also what is called by no name.
    """
    found = [function]
    met = dict.fromkeys(kinds)
    owner = function.__globals__.get(function.__qualname__.rpartition(".")[0])
    for kind in met:
        own = isinstance(owner, type) and (issubclass(kind, owner) or issubclass(owner, kind))
        for name in _OF_ITSELF if own else _SILENT:
            _take(vars(kind).get(name), found)
    for one in found:
        for home, names in homes(one, met):
            for name in names:
                value = home[name]
                _take(value, found)
                if isinstance(value, type) and value is not owner and is_own(value):
                    for silent in (*_SILENT, *_MAKING):
                        _take(vars(value).get(silent), found)
    return found


def draws(function: FunctionType) -> str:
    """Which call of a function draws random numbers that no generator's state shows, or asks where and when
    it is called; "" where none does.
    """
    for code in codes(function):
        unseen = sorted(_UNSEEN.intersection(code.co_names))
        if unseen:
            return f"{function.__qualname__} uses {unseen[0]}: it draws random numbers"
        elsewhere = sorted(_ELSEWHERE.intersection(code.co_names))
        if elsewhere:
            return f"{function.__qualname__} calls {elsewhere[0]}()"
        instructions = [one for one in dis.get_instructions(code) if one.opname not in _BETWEEN]
        for one, after in itertools.pairwise(instructions):
            if one.argval in _SEEDED and after.opname.startswith("CALL") and after.arg == 0:
                return f"{function.__qualname__} calls {one.argval}() without a seed: it draws random numbers"
    return ""


def _take(value: Any, found: list[FunctionType]) -> None:
    """What is called in place of a value of a module or a class."""
    for _ in range(8):
        below = next(
            (part for name in ("__func__", "fget", "func", "__wrapped__") if (part := _part(value, name))),
            None,
        )
        new = isinstance(value, FunctionType) and value not in found and is_own(value)
        if new and len(found) < _MOST_REACHED:
            found.append(value)
        if below is None:
            break
        value = below


def _part(value: Any, name: str) -> Any:
    if name in ("fget", "func") and not isinstance(value, property | functools.cached_property):
        return None
    held = isinstance(value, (FunctionType, staticmethod, classmethod, property, functools.cached_property))
    wrapper = type(value) is functools._lru_cache_wrapper
    return getattr(value, name, None) if held or wrapper else None


def homes(function: FunctionType, kinds: Iterable[type] = ()) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Where a function finds what its code names: its module, the user's modules and classes that it names,
    its own class, those of objects that were met; each with the names that are there.
    """
    names = {name for code in codes(function) for name in code.co_names}
    values = function.__globals__
    named = [values[name] for name in sorted(names & values.keys())]
    owner = values.get(function.__qualname__.rpartition(".")[0])
    named += [base for base in getattr(owner, "__mro__", ()) if base is not object]
    named += kinds
    found: dict[int, Mapping[str, Any]] = {id(values): values}
    for one in named:
        if isinstance(one, (ModuleType, type)) and is_own(one):
            space = _space(one)
            found[id(space)] = space
    return [(home, sorted(names & home.keys())) for home in found.values()]


@functools.cache
def _space(one: Any) -> Mapping[str, Any]:
    """``vars`` of a class is another object each time."""
    space: Mapping[str, Any] = vars(one)
    return space


def codes(function: FunctionType) -> Iterator[Any]:
    """A function's code and that of what is written within it."""
    return closed.codes(function.__code__)


def is_code(value: Any) -> bool:
    """Whether a value is code, which does not change by itself."""
    return isinstance(value, _CODE)


def is_own(value: Any) -> bool:
    """Whether a module, class or function is neither Python's nor of an installed package."""
    if isinstance(value, ModuleType) and sys.modules.get(value.__name__) is not value:
        return True  # made by hand
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    file = getattr(sys.modules.get(str(name)), "__file__", None) or ""
    return bool(file) and not file.startswith(_LIBRARIES)
