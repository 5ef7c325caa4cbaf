"""What an object is made of: a walk over its parameters and the code that works on them.

What pickle would send to a worker counts as parameters; the classes, the functions and, of the user's own
modules, all functions and constants they refer to count as code.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import mmap
import os
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from hotloop.feed.baking.sourcecode import (
    digest,
    global_names,
    is_installed,
    is_irrelevant,
    qualified,
    source_digest,
    texts,
)
from hotloop.feed.layout import tensor_bytes

#: Containers up to this size are described element by element, larger ones by one digest.
_SHOWN_ELEMENTS = 32
_SHOWN_LETTERS = 80
_ATOMS = (type(None), bool, int, float, complex, str, bytes)


class Ingredients:
    """Collects names and short words for whatever is visited, once per object.

    ``code`` and ``parameters`` go from a name to a digest or a value; ``paths`` are the parameters that are
    the path of something that exists.
    """

    def __init__(self) -> None:
        self.code: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.paths: set[str] = set()
        self._texts: set[str] = set()
        self._seen: dict[int, Any] = {}  # the objects are kept: an id must not be given away meanwhile

    def visit(self, name: str, value: Any) -> None:
        """Describe ``value`` under ``name``."""
        if isinstance(value, (*_ATOMS, os.PathLike)):
            self.parameters[name] = self._atom(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if (place := place_in_file(value)) is not None:
            self.parameters[name] = f"array {value.dtype} {value.shape} at {place}"
            self._note_path(value.filename)
        elif isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
            self.parameters[name] = _array(value)
        elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial, type)):
            self._callable(name, value)
        elif isinstance(value, (types.BuiltinFunctionType, types.ModuleType)):
            self.parameters[name] = str(value.__name__)
        elif type(value) in (list, tuple, dict, set, frozenset):
            self._container(name, value)
        else:
            self._object(name, value)

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
        if is_path(text):
            self.paths.add(os.path.abspath(text))  # noqa: PTH100

    def _container(self, name: str, value: Any) -> None:
        if isinstance(value, dict):
            items: list[tuple[Any, Any]] = list(value.items())
        elif isinstance(value, (set, frozenset)):
            items = list(enumerate(sorted(value, key=repr)))
        else:
            items = list(enumerate(value))
        if len(items) <= _SHOWN_ELEMENTS:
            self.parameters[name] = f"{type(value).__name__} of {len(items)}"
            for key, element in items:
                self.visit(f"{name}[{key!r}]", element)
            return
        inner = Ingredients()
        inner._seen, inner._texts = self._seen, self._texts
        whole = hashlib.blake2b(digest_size=8)
        for key, element in items:
            inner.parameters.clear()
            if isinstance(element, _ATOMS):
                whole.update(f"{key!r}:{inner._full(element)};".encode())
            else:
                inner.visit("", element)
                whole.update(f"{key!r}:{inner.parameters};".encode())
        self.code |= inner.code
        self.paths |= inner.paths
        self.parameters[name] = f"{type(value).__name__} of {len(items)}, {whole.hexdigest()}"

    def _full(self, value: Any) -> str:
        if isinstance(value, str):
            self._note_path(value)
        return repr(value)

    def _object(self, name: str, value: Any) -> None:
        self._class(type(value))
        try:
            reduced = value.__reduce_ex__(2)
        except Exception:  # open handles, locks, whatever refuses to be pickled: only its type is known
            reduced = None
        self.parameters[name] = qualified(type(value))
        if isinstance(reduced, str) or reduced is None:
            return
        _, arguments, *state = reduced
        for position, argument in enumerate(arguments):
            if argument is not type(value) and argument is not object:
                self.visit(f"{name}({position})", argument)
        if state and state[0] is not None:
            self._state(name, state[0])
        for extra in state[1:3]:
            if extra is not None:
                self.visit(f"{name}[:]", list(extra))

    def _state(self, name: str, state: Any) -> None:
        if (
            isinstance(state, tuple)
            and len(state) == 2
            and all(isinstance(s, (dict, type(None))) for s in state)
        ):
            state = {**(state[0] or {}), **(state[1] or {})}
        if not isinstance(state, dict):
            self.visit(f"{name}.state", state)
            return
        for key, element in state.items():
            self.visit(f"{name}.{key}", element)

    def _callable(self, name: str, value: Any) -> None:
        if isinstance(value, functools.partial):
            self.parameters[name] = "partial"
            self.visit(f"{name}.func", value.func)
            self.visit(f"{name}.args", value.args)
            self.visit(f"{name}.keywords", value.keywords)
        elif isinstance(value, types.MethodType):
            self.visit(f"{name}.self", value.__self__)
            self.visit(f"{name}.function", value.__func__)
            self.parameters[name] = qualified(value.__func__)
        elif isinstance(value, type):
            self._class(value)
            self.parameters[name] = qualified(value)
        else:
            self._function(value)
            self.parameters[name] = qualified(value)
            for number, cell in enumerate(value.__closure__ or ()):
                self.visit(f"{name}.{value.__code__.co_freevars[number]}", _cell(cell))

    def _class(self, kind: type) -> None:
        for one in kind.__mro__:
            if qualified(one) in self.code or one is object:
                continue
            if is_installed(one):
                self.code[qualified(one)] = "installed"
                continue
            self.code[qualified(one)] = source_digest(one)
            for member in vars(one).values():
                inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                if isinstance(inner, types.FunctionType):
                    self._references(inner)

    def _function(self, function: types.FunctionType) -> None:
        name = qualified(function)
        if name in self.code and "<lambda>" not in name:
            return
        if is_installed(function):
            self.code[name] = "installed"
            return
        # Lambdas share one name: what distinguishes them is added up.
        known = self.code.get(name)
        source = source_digest(function)
        self.code[name] = source if known in (None, source) else digest(f"{known}{source}".encode())
        self._references(function)

    def _references(self, function: types.FunctionType) -> None:
        """Follow the global names a function uses, as far as they are the user's own."""
        function = inspect.unwrap(function)
        for text in texts(function.__code__):
            self._note_path(text)
        for name, value in own_globals(function):
            self.visit(name, value)


def own_globals(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function mentions of its module, and of the user's modules it mentions, by full name.

    What says nothing about samples (locks, loggers) is left out.
    """
    names = sorted(global_names(function.__code__))
    spaces = [(str(function.__module__), function.__globals__)]
    for place, space in spaces:
        for name in names:
            value = space.get(name)
            if value is None or is_irrelevant(value):
                continue
            is_own = isinstance(value, types.ModuleType) and not is_installed(value)
            if is_own and all(vars(value) is not known for _, known in spaces):
                spaces.append((value.__name__, vars(value)))
            cached = isinstance(value, functools._lru_cache_wrapper)
            yield f"{place}.{name}", value.__wrapped__ if cached else value


def is_path(text: str) -> bool:
    """Whether something of this name exists, seen from the working directory."""
    return (
        len(text) <= 4096 and "\0" not in text and "\n" not in text and os.path.exists(text)  # noqa: PTH110
    )


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


def _array(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        try:
            data = tensor_bytes(value.detach().cpu())
        except (RuntimeError, NotImplementedError, TypeError):
            return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
        return f"tensor {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} {digest(data)}"
    array = np.asarray(value)
    if array.dtype.hasobject:
        return f"array {array.dtype} {array.shape} {digest(repr(array.tolist()).encode())}"
    flat = np.ascontiguousarray(array).reshape(-1)
    return f"array {array.dtype} {array.shape} {digest(flat.view(np.uint8) if flat.size else b'')}"
