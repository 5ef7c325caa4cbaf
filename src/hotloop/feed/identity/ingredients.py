"""What an object is made of: a walk over its parameters and the code that works on them.

What pickle would send to a worker counts as parameters; the classes with their attributes, the functions and,
of the user's own modules, all functions and constants they refer to count as code.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import mmap
import os
import types
from collections import ChainMap
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import torch

from hotloop.feed.identity.sourcecode import (
    digest,
    function_of,
    global_names,
    is_installed,
    is_irrelevant,
    module_name,
    qualified,
    seed_of,
    source_digest,
    texts,
)
from hotloop.feed.layout import tensor_bytes

#: Containers up to this size are described element by element, larger ones by one digest.
_SHOWN_ELEMENTS = 32
_SHOWN_LETTERS = 80
_ATOMS = (type(None), bool, int, float, complex, str, bytes)

_NOT_OF_THE_CLASS = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__parameters__", "__orig_bases__",
    "__abstractmethods__", "_abc_impl", "__match_args__", "__dataclass_fields__", "__dataclass_params__",
    "__static_attributes__", "__firstlineno__", "__annotate__", "__annotate_func__",
}  # fmt: skip


class Ingredients:
    """Collects names and short words for whatever is visited, once per object.

    ``code`` and ``parameters`` go from a name to a digest or a value; ``paths`` are the parameters that are
    the path of something that exists; ``unreadable`` says where something could not be looked into: only its
    type is known then. ``seeds``: what is read may depend on the seed of a generator of random numbers;
    without, these are left out.
    """

    def __init__(self, *, seeds: bool = True) -> None:
        self.code: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.paths: set[str] = set()
        self.unreadable: list[str] = []
        self._seeds = seeds
        self._source = functools.cache(source_digest)
        self._texts: set[str] = set()
        # By id, with the name it had first; the objects are kept: an id must not be given away meanwhile.
        self._seen: MutableMapping[int, tuple[Any, str]] = {}
        self._classes: dict[int, type] = {}

    def visit(self, name: str, value: Any) -> None:
        """Describe ``value`` under ``name``."""
        if isinstance(value, (*_ATOMS, os.PathLike)):
            self.parameters[name] = self._atom(value)
            return
        if id(value) in self._seen:
            self.parameters[name] = f"as {self._seen[id(value)][1]}"
            return
        # Whether equal tuples are the same one is the interpreter's choice.
        if type(value) not in (tuple, frozenset):
            self._seen[id(value)] = value, name
        if (place := place_in_file(value)) is not None:
            self.parameters[name] = f"array {value.dtype} {value.shape} at {place}"
            self._note_path(value.filename)
        elif isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
            self._array(name, value)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, type)):
            self._callable(name, value)
        elif isinstance(value, functools._lru_cache_wrapper):
            self.visit(name, value.__wrapped__)
        elif isinstance(value, types.BuiltinFunctionType):
            self.parameters[name] = qualified(value)
            if not isinstance(value.__self__, (types.ModuleType, type(None))):
                self.visit(f"{name}.self", value.__self__)
        elif isinstance(value, types.ModuleType):
            self.parameters[name] = value.__name__
        elif type(value) in (list, tuple, dict, set, frozenset):
            self._container(name, value)
        elif is_irrelevant(value):
            self.parameters[name] = qualified(type(value)) + (seed_of(value) if self._seeds else "")
        else:
            # What it holds before what it is: a reason then names the attribute.
            self._object(name, value)
            self._class(type(value))

    def _atom(self, value: Any) -> str:
        if isinstance(value, (str, os.PathLike)):
            self._note_path(value)
        text = repr(value)
        return text if len(text) <= _SHOWN_LETTERS else f"{type(value).__name__} {digest(text.encode())}"

    def _note_path(self, value: str | os.PathLike[str]) -> None:
        text = os.fspath(value)
        if not isinstance(text, str) or text in self._texts:
            return
        self._texts.add(text)
        named = len(text) <= 4096 and "\0" not in text and "\n" not in text
        if named and os.path.exists(text):  # noqa: PTH110
            self.paths.add(os.path.abspath(text))  # noqa: PTH100

    def _container(self, name: str, value: Any) -> None:
        if isinstance(value, dict):
            items: list[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, (set, frozenset)):
            items = list(enumerate(sorted(value, key=self._alone)))
        else:
            items = list(enumerate(value))
        if len(items) <= _SHOWN_ELEMENTS:
            self.parameters[name] = f"{type(value).__name__} of {len(items)}"
            for position, (key, element) in enumerate(items):
                if not _is_plain(key):
                    self.visit(f"{name} key {position}", key)
                self.visit(f"{name}[{repr(key) if _is_plain(key) else position}]", element)
            return
        inner = copy.copy(self)  # collects into this one, with parameters of its own
        inner.parameters = {}
        whole = hashlib.blake2b(digest_size=8)
        for position, (key, element) in enumerate(items):
            for own, one in ((f"{name} key {position}", key), (f"{name}[{position}]", element)):
                inner.parameters.clear()
                if _is_plain(one):
                    whole.update(f"{inner._full(one)};".encode("utf-8", "surrogatepass"))
                else:
                    inner.visit(own, one)
                    whole.update(f"{inner.parameters};".encode("utf-8", "surrogatepass"))
        self.parameters[name] = f"{type(value).__name__} of {len(items)}, {whole.hexdigest()}"

    def _alone(self, value: Any) -> str:
        """What describes a value that nothing stands around: the same order of a set in every process."""
        if _is_plain(value):
            return repr(value)
        inner = Ingredients(seeds=self._seeds)
        inner._source, inner._classes = self._source, dict(self._classes)
        inner._seen = ChainMap({}, self._seen)
        inner.visit("", value)
        return repr((inner.parameters, inner.code))

    def _full(self, value: Any) -> str:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str):
                self._note_path(one)
        return repr(value)

    def _array(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray | np.generic) and value.dtype.hasobject:
            self.parameters[name] = f"array {value.dtype} {value.shape}"
            self.visit(f"{name}[:]", value.tolist())
            return
        self.parameters[name], is_read = _array_words(value)
        if not is_read:
            self.unreadable.append(f"{name} is a {value.layout} tensor")

    def _object(self, name: str, value: Any) -> None:
        self.parameters[name] = qualified(type(value))
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:  # open handles, whatever refuses to be pickled
            self.unreadable.append(f"{name} is a {type(value).__qualname__}: {error}")
            return
        if isinstance(reduced, str):
            self.parameters[name] += f" {reduced}"
            return
        make, arguments, *state = reduced
        if not is_installed(make):
            self.visit(f"{name}.make", make)
        for position, argument in enumerate(arguments):
            if argument is not type(value) and argument is not object:
                self.visit(f"{name}({position})", argument)
        if state and state[0] is not None:
            self._state(name, state[0])
        for extra in state[1:3]:
            if extra is not None:
                self.visit(f"{name}[:]", list(extra))

    def _state(self, name: str, state: Any) -> None:
        if isinstance(state, tuple) and len(state) == 2 and all(isinstance(s, dict | None) for s in state):
            state = {**(state[0] or {}), **(state[1] or {})}  # of an object with slots
        if not isinstance(state, dict):
            self.visit(f"{name}.state", state)
            return
        for key, element in state.items():
            self.visit(f"{name}.{key}", element)

    def _callable(self, name: str, value: Any) -> None:
        if isinstance(value, functools.partial):
            self.parameters[name] = "partial"
            for part in ("func", "args", "keywords"):
                self.visit(f"{name}.{part}", getattr(value, part))
        elif isinstance(value, types.MethodType):
            self.visit(f"{name}.self", value.__self__)
            self.visit(f"{name}.function", value.__func__)
            self.parameters[name] = qualified(value.__func__)
        elif isinstance(value, type):
            self.parameters[name] = qualified(value)
            self._class(value)
        else:
            self.parameters[name] = qualified(value)
            self._function(name, value)

    def _class(self, kind: type) -> None:
        """Describe a class and its bases."""
        for one in kind.__mro__:
            if id(one) not in self._classes and one is not object:
                self._classes[id(one)] = one
                self._one_class(one)

    def _one_class(self, kind: type) -> None:
        own = qualified(kind)
        if is_installed(kind):
            self.code[own] = "installed"
            return
        self._add(own, self._source(kind))
        for name, member in sorted(vars(kind).items()):
            inner = function_of(member)
            if isinstance(inner, types.FunctionType):
                self._method(kind, f"{own}.{name}", inner)
            elif name not in _NOT_OF_THE_CLASS and not inspect.isdatadescriptor(member):
                self.visit(f"{own}.{name}", member)

    def _method(self, kind: type, name: str, function: types.FunctionType) -> None:
        """A class's text has its methods' text; what decorated or was put there comes from elsewhere."""
        code = function.__code__
        if code.co_qualname.startswith(f"{kind.__qualname__}.") or code.co_filename.startswith("<"):
            self._bound(name, function)
            self._references(function)
        else:
            self.visit(name, function)

    def _function(self, name: str, function: types.FunctionType) -> None:
        self._bound(name, function)
        if is_installed(function):
            self.code[qualified(function)] = "installed"
            return
        if function.__code__.co_qualname.startswith("__create_fn__"):
            return  # a dataclass made it of its fields, which the class's own text has
        # By the code's own name: a decorator copies that of what it wraps.
        own = f"{module_name(function)}.{function.__code__.co_qualname}"
        self._add(own, self._source(function))
        self._references(function)

    def _add(self, own: str, source: str) -> None:
        """Lambdas, and what functions make, share one name: what distinguishes them is added up."""
        if not source:
            self.unreadable.append(f"{own} has no source")
        known = self.code.get(own)
        self.code[own] = source if known in (None, source) else digest(f"{known}{source}".encode())

    def _bound(self, name: str, function: types.FunctionType) -> None:
        """The values that a function took along when it was made: its closure, its defaults."""
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if variable != "__class__":
                self.visit(f"{name}.{variable}", _cell(cell))
        for defaults in (function.__defaults__, function.__kwdefaults__):
            if defaults:
                self.visit(f"{name}.defaults", defaults)

    def _references(self, function: types.FunctionType) -> None:
        """Follow the global names a function uses, as far as they are the user's own."""
        for text in texts(function.__code__):
            self._note_path(text)
        for name, value in own_globals(function):
            self.visit(name, value)


def _is_plain(value: Any) -> bool:
    """A number or text, or a tuple of such: what ``repr`` says all about."""
    return isinstance(value, _ATOMS) or (
        type(value) is tuple and all(isinstance(one, _ATOMS) for one in value)
    )


def _array_words(value: Any) -> tuple[str, bool]:
    """What an array or tensor is and holds, and whether that could be read."""
    if not isinstance(value, torch.Tensor):
        array = np.asarray(value)
        flat = np.ascontiguousarray(array).reshape(-1)
        held = digest(flat.view(np.uint8) if flat.size else b"")
        return f"array {array.dtype} {array.shape} {held}", True
    kind = f"tensor {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    try:
        return f"{kind} {digest(tensor_bytes(value.detach().cpu().resolve_conj().resolve_neg()))}", True
    except (RuntimeError, NotImplementedError, TypeError):
        return f"{kind}, {value.layout}", False


def own_globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function mentions of its module, and of the user's modules it mentions, by full name.

    What says nothing about samples (locks, loggers) is left out.
    """
    names = sorted(global_names(function.__code__))
    spaces = [(module_name(function), function.__globals__)]
    for place, space in spaces:
        for name in names:
            value = space.get(name)
            if value is None or is_irrelevant(value):
                continue
            is_own = isinstance(value, types.ModuleType) and not is_installed(value)
            if is_own and all(vars(value) is not known for _, known in spaces):
                spaces.append((value.__name__, vars(value)))
            yield f"{place}.{name}", value


def place_in_file(value: Any) -> str | None:
    """Which bytes of which file an array maps; None for arrays that are no view of a file as it is.

    A copy-on-write mapping may differ from its file and is an array like any other.
    """
    if not isinstance(value, np.memmap) or value.filename is None or value.mode == "c":
        return None
    mapped = np.frombuffer(value._mmap, np.uint8)  # type: ignore[attr-defined]
    start = value.offset - value.offset % mmap.ALLOCATIONGRANULARITY
    start += value.__array_interface__["data"][0] - mapped.__array_interface__["data"][0]
    return f"byte {start} of {value.filename}, strides {value.strides}"


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
