"""What a dataset and its pipeline are, as 32 bytes: classes, their code, their parameters and data.

Two processes that get the same bytes may share samples, so whatever could make samples differ goes in, and
what cannot be looked into is refused. Files that a dataset names are known by size and time of change.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import sysconfig
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotloop.feed.baking.fingerprint import is_general, source_files
from hotloop.feed.baking.ingredients import is_path, own_globals, place_in_file
from hotloop.feed.baking.sourcecode import is_irrelevant
from hotloop.feed.layout import tensor_bytes


class Unknowable(Exception):  # noqa: N818 - an answer, not a fault
    """Something cannot be told from another of its kind; the message says where and what."""


def fingerprint(*parts: Any) -> bytes:
    """32 bytes that are equal in another process exactly if these objects are.

    Raises:
        Unknowable: an object holds state that cannot be read (an open file of another library, say).
    """
    walk = _Walk()
    try:
        for part in parts:
            # What it holds before what it is: a reason then names the attribute.
            walk.add(getattr(part, "__dict__", None), "dataset")
            walk.add(part, "dataset")
    except RecursionError:
        raise Unknowable("it is nested too deeply") from None
    return walk.digest()


class _Walk:
    """Feeds a tree of objects to a hash; each object once, later as a reference to where it was."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=32)
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []
        self._paths: set[str] = set()

    def digest(self) -> bytes:
        for path in sorted(self._paths):
            self._say("at", path)
        for file in source_files((path for path in self._paths if not is_general(path)), None).items():
            self._say("file", *file)
        return self._hash.digest()

    def _say(self, *words: Any) -> None:
        self._hash.update(("\0".join(map(str, words)) + "\1").encode("utf-8", "surrogatepass"))

    def add(self, value: Any, where: str) -> None:
        if value is None or isinstance(value, (bool, int, float, complex)):
            self._say(type(value).__qualname__, repr(value))
        elif isinstance(value, (str, Path)):
            self._add_text(value)
        elif isinstance(value, (bytes, bytearray, memoryview)):
            self._say("bytes", len(value))
            self._hash.update(value)
        elif id(value) in self._places:
            self._say("again", self._places[id(value)])
        else:
            self._places[id(value)] = len(self._places)
            self._kept.append(value)  # so that no other object gets its id while we walk
            self._add_object(value, where)

    def _add_text(self, value: str | Path) -> None:
        self._say("text", value)
        if is_path(str(value)):
            self._paths.add(os.path.abspath(value))  # noqa: PTH100 - a million of them

    def _add_object(self, value: Any, where: str) -> None:
        kind = type(value)
        self._say("a", kind.__module__, kind.__qualname__)
        if kind in (list, tuple):
            self._add_all(value, where)
        elif kind is dict:
            self._say(len(value))
            for key, item in value.items():
                self.add(key, where)
                self.add(item, f"{where}.{key}" if isinstance(key, str) else f"{where}[{key!r}]")
        elif kind in (set, frozenset):
            self._say(sorted(fingerprint_of_one(item, where).hex() for item in value))
        elif (place := place_in_file(value)) is not None:
            self._say(value.dtype.str, value.shape, place)
            self._add_text(value.filename)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            self._say(value.dtype.str, value.shape)
            self._hash.update(memoryview(np.ascontiguousarray(value).reshape(-1).view(np.uint8)))  # type: ignore[arg-type]
        elif isinstance(value, torch.Tensor):
            self._add_tensor(value, where)
        elif isinstance(value, type):
            self._add_class(value, where)
        elif isinstance(value, types.ModuleType):
            self._say(value.__name__, getattr(value, "__version__", ""))
        elif isinstance(value, (staticmethod, classmethod)):
            self.add(value.__func__, where)
        elif isinstance(value, types.FunctionType):
            self._add_function(value, where)
        elif isinstance(value, types.MethodType):
            self.add(value.__func__, where)
            self.add(value.__self__, where)
        elif isinstance(value, functools.partial):
            self._add_all((value.func, value.args, value.keywords), where)
        elif isinstance(value, (types.BuiltinFunctionType, np.ufunc)):
            self._say(getattr(value, "__module__", ""), value.__name__)
        elif isinstance(value, types.CodeType):
            self._add_code(value, where)
        elif not is_irrelevant(value):
            self._add_reduced(value, where)

    def _add_all(self, values: Iterable[Any], where: str) -> None:
        for position, item in enumerate(values):
            self.add(item, f"{where}[{position}]")
        self._say("end")

    def _add_tensor(self, value: torch.Tensor, where: str) -> None:
        if value.layout is not torch.strided or value.is_quantized:
            raise Unknowable(f"{where} is a {value.layout} tensor")
        self._say(value.dtype, tuple(value.shape))
        flat = tensor_bytes(value.detach().cpu().resolve_conj().resolve_neg())
        self._hash.update(memoryview(flat))  # type: ignore[arg-type]

    def _add_class(self, value: type, where: str) -> None:
        """Its name, and for what a user wrote its methods and constants, and those of its bases."""
        self._say(value.__module__, value.__qualname__)
        for base in value.__mro__:
            if library := _library(base.__module__):
                self._say(library, base.__qualname__)
                continue
            for name, member in sorted(vars(base).items()):
                if name not in _NOT_OF_THE_CLASS:
                    self._say(name)
                    self.add(member.fget if isinstance(member, property) else member, f"{where}.{name}")

    def _add_function(self, value: types.FunctionType, where: str) -> None:
        """Its code, and what that refers to; of a library's function its name, and what it wraps."""
        self._say(value.__module__, value.__qualname__)
        self._add_all((value.__defaults__, value.__kwdefaults__), where)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                self.add(cell.cell_contents, f"{where}.{name}")
            except ValueError:
                self._say("empty cell")
        # Not by __module__, which a decorator copies from what it wraps.
        if library := _library(value.__globals__.get("__name__", "__main__")):
            self._say(library)
            return
        self.add(value.__code__, where)
        for name, item in own_globals(value):
            self._say(name)
            self.add(item, name)

    def _add_code(self, value: types.CodeType, where: str) -> None:
        self._hash.update(value.co_code)
        self._say(value.co_names, value.co_varnames)
        self._add_all(value.co_consts, where)

    def _add_reduced(self, value: Any, where: str) -> None:
        """Anything else, as pickle would take it apart."""
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:  # a user's own __getstate__ may raise anything
            raise Unknowable(f"{where} is a {type(value).__qualname__}: {error}") from None
        if isinstance(reduced, str):
            self._say(reduced)
            return
        make, arguments, *state = reduced
        self.add(make, where)
        self._add_all(arguments, where)
        for part in state[:1]:
            self._add_state(part, where)
        for part in state[1:3]:
            self._add_all(part if part is not None else (), where)

    def _add_state(self, state: Any, where: str) -> None:
        if not isinstance(state, dict):
            self.add(state, where)
            return
        for name, item in state.items():
            self._say(name)
            self.add(item, f"{where}.{name}")


def fingerprint_of_one(value: Any, where: str) -> bytes:
    """The hash of one object by itself, for collections without an order."""
    walk = _Walk()
    walk.add(value, where)
    return walk.digest()


_NOT_OF_THE_CLASS = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__parameters__", "__orig_bases__",
    "__abstractmethods__", "_abc_impl", "__match_args__", "__dataclass_fields__", "__static_attributes__",
    "__firstlineno__", "__annotate__", "__annotate_func__",
}  # fmt: skip


@functools.cache
def _library(module: str) -> str:
    """How a module is known by name and version if it is not the user's own code; empty if it is."""
    top = module.partition(".")[0]
    if top == "__main__" or module not in sys.modules:
        return ""
    file = getattr(sys.modules[module], "__file__", None)
    if top == "hotloop" or file is None or file.startswith(_LIBRARY_FOLDERS) or "-packages/" in file:
        return f"{module} {getattr(sys.modules.get(top), '__version__', '')}"
    return ""


_LIBRARY_FOLDERS = tuple(
    sysconfig.get_path(name) + "/" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
