"""What a dataset's samples depend on, in names and short words that can be compared and shown.

Four things: the source of the classes and functions (the dataset's own, its transforms', and every function
and constant of the user's modules they refer to), the parameters (what pickle would send to a worker), the
size and modification time of the files the parameters name, and the number of samples. Comments, docstrings
and layout do not count. Code of installed packages is known by its version and does not make a bake stale.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import linecache
import os
import sys
import sysconfig
import textwrap
import time
import types
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotloop.feed.layout import tensor_bytes

#: Containers up to this size are described element by element, larger ones by one digest.
_SHOWN_ELEMENTS = 32
#: Files up to this number are listed one by one, more by folder.
_SHOWN_FILES = 256
_SHOWN_LETTERS = 80
_ATOMS = (type(None), bool, int, float, complex, str, bytes)
#: What counts of the global variables that functions use.
_CONSTANTS = (*_ATOMS, tuple, list, dict, set, frozenset, np.ndarray, torch.Tensor, os.PathLike)
_INSTALLED = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """``code``, ``parameters`` and ``sources``, each from a name to what it was.

    ``volatile`` names are not compared. ``source`` holds the paths the caller named (None: those found in
    the parameters).
    """

    num_samples: int
    code: Mapping[str, str]
    parameters: Mapping[str, str]
    sources: Mapping[str, str]
    source: tuple[str, ...] | None = None
    volatile: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data for a manifest."""
        return {
            "num_samples": self.num_samples,
            "code": dict(self.code),
            "parameters": dict(self.parameters),
            "sources": dict(self.sources),
            "source": None if self.source is None else list(self.source),
            "volatile": list(self.volatile),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Fingerprint:
        """The fingerprint that :meth:`as_json` gave."""
        source = content["source"]
        return cls(
            num_samples=content["num_samples"],
            code=content["code"],
            parameters=content["parameters"],
            sources=content["sources"],
            source=None if source is None else tuple(source),
            volatile=tuple(content["volatile"]),
        )


def take(
    dataset: Any, *, source: Iterable[str | os.PathLike[str]] | None = None, beside: Path | None = None
) -> Fingerprint:
    """The fingerprint of a dataset now.

    ``source`` names the files and folders its samples come from; without it, every parameter that is the path
    of something that exists counts. Nothing at ``beside`` (the bake itself) is looked at.
    """
    visitor = _Visitor()
    visitor.visit("dataset", dataset)
    named = None if source is None else tuple(sorted(str(Path(path).resolve()) for path in source))
    paths = visitor.paths if named is None else named
    return Fingerprint(
        num_samples=len(dataset),
        code=visitor.code,
        parameters=visitor.parameters,
        sources=_sources(paths, beside),
        source=named,
    )


def settled(before: Fingerprint, after: Fingerprint) -> Fingerprint:
    """``before``, with what reading samples changed marked as volatile: such are no parameters."""
    names = before.parameters.keys() | after.parameters.keys()
    moved = sorted(n for n in names if before.parameters.get(n) != after.parameters.get(n))
    # A file that reading made (an index, say) is there from now on.
    return dataclasses.replace(before, volatile=tuple(moved), sources={**after.sources, **before.sources})


def changes(then: Fingerprint, now: Fingerprint) -> list[str]:
    """What is different now, one line each; empty where nothing is."""
    found = []
    if then.num_samples != now.num_samples:
        found.append(f"the dataset had {then.num_samples:,} samples, now {now.num_samples:,}")
    found += _compare("the code of {} changed", "code {} ", then.code, now.code, ())
    volatile = {*then.volatile, *now.volatile}
    found += _compare("{} was {}, now {}", "{} ", then.parameters, now.parameters, volatile)
    found += _compare("{} changed ({}, now {})", "file {} ", then.sources, now.sources, ())
    return found


def libraries(code: Mapping[str, str]) -> dict[str, str]:
    """The installed packages among a fingerprint's code, with their versions."""
    found = {}
    for name in code:
        top = name.partition(".")[0]
        version = getattr(sys.modules.get(top), "__version__", None)
        if isinstance(version, str):
            found[top] = version
    return found


def _compare(
    changed: str, other: str, then: Mapping[str, str], now: Mapping[str, str], skip: Collection[str]
) -> Iterator[str]:
    for name in sorted(then.keys() | now.keys()):
        if any(name == s or name.startswith((f"{s}.", f"{s}[")) for s in skip):
            continue
        if name not in now:
            yield other.format(name) + "is gone"
        elif name not in then:
            yield other.format(name) + "is new"
        elif then[name] != now[name]:
            yield changed.format(name, then[name], now[name])


class _Visitor:
    """Walks whatever a dataset is made of, once per object."""

    def __init__(self) -> None:
        self.code: dict[str, str] = {}
        self.parameters: dict[str, str] = {}
        self.paths: set[str] = set()
        self._seen: dict[int, Any] = {}  # the objects are kept: an id must not be given away meanwhile

    def visit(self, name: str, value: Any) -> None:
        """Describe ``value`` under ``name``."""
        if isinstance(value, (*_ATOMS, os.PathLike)):
            self.parameters[name] = self._atom(value)
            return
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
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
        return text if len(text) <= _SHOWN_LETTERS else f"{type(value).__name__} {_digest(text.encode())}"

    def _note_path(self, value: str | os.PathLike[str]) -> None:
        text = os.fspath(value)
        # A bare word may be the name of a split as well as of a file.
        if isinstance(value, str) and (
            os.sep not in text or len(text) > 4096 or "\0" in text or "\n" in text
        ):
            return
        if isinstance(text, str) and Path(text).exists():
            self.paths.add(str(Path(text).resolve()))

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
        inner = _Visitor()
        inner._seen = self._seen
        digest = hashlib.blake2b(digest_size=8)
        for key, element in items:
            inner.parameters.clear()
            if isinstance(element, _ATOMS):
                digest.update(f"{key!r}:{inner._full(element)};".encode())
            else:
                inner.visit("", element)
                digest.update(f"{key!r}:{inner.parameters};".encode())
        self.code |= inner.code
        self.paths |= inner.paths
        self.parameters[name] = f"{type(value).__name__} of {len(items)}, {digest.hexdigest()}"

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
        self.parameters[name] = _qualified(type(value))
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
            self.parameters[name] = _qualified(value.__func__)
        elif isinstance(value, type):
            self._class(value)
            self.parameters[name] = _qualified(value)
        else:
            self._function(value)
            self.parameters[name] = _qualified(value)
            for number, cell in enumerate(value.__closure__ or ()):
                self.visit(f"{name}.{value.__code__.co_freevars[number]}", _cell(cell))

    def _class(self, kind: type) -> None:
        for one in kind.__mro__:
            if _qualified(one) in self.code or one is object:
                continue
            if _is_installed(one):
                self.code[_qualified(one)] = "installed"
                continue
            self.code[_qualified(one)] = _source(one)
            for member in vars(one).values():
                inner = getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                if isinstance(inner, types.FunctionType):
                    self._references(inner)

    def _function(self, function: types.FunctionType) -> None:
        name = _qualified(function)
        if name in self.code and "<lambda>" not in name:
            return
        if _is_installed(function):
            self.code[name] = "installed"
            return
        # Lambdas share one name: what distinguishes them is added up.
        known = self.code.get(name)
        source = _source(function)
        self.code[name] = source if known in (None, source) else _digest(f"{known}{source}".encode())
        self._references(function)

    def _references(self, function: types.FunctionType) -> None:
        """Follow the global names a function uses, as far as they are the user's own."""
        function = inspect.unwrap(function)
        for global_name in sorted(_global_names(function.__code__)):
            value = function.__globals__.get(global_name)
            if isinstance(value, (types.FunctionType, functools.partial, type)):
                if isinstance(value, functools.partial) or not _is_installed(value):
                    self.visit(f"{function.__module__}.{global_name}", value)
            elif value is not None and isinstance(value, _CONSTANTS):
                self.visit(f"{function.__module__}.{global_name}", value)


def _cell(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _qualified(value: Any) -> str:
    return f"{getattr(value, '__module__', None)}.{getattr(value, '__qualname__', type(value).__name__)}"


def _is_installed(value: Any) -> bool:
    """From the standard library, an installed package, or hotloop: not the user's own code."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return False
    if module.__name__.partition(".")[0] in ("torch", "numpy", "hotloop", "builtins"):
        return True
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    return "site-packages" in file or "dist-packages" in file or file.startswith(_INSTALLED)


def _source(value: Any) -> str:
    """A digest of the source without comments, docstrings and layout; of the bytecode where there is none."""
    linecache.checkcache()
    try:
        text = textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError):
        return _digest(_bytecode(value))
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda in the middle of an expression
        code = getattr(value, "__code__", None)
        return _digest(_bytecode(value) if code else text.encode())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and _is_docstring(body):
            node.body = node.body[1:] or [ast.Pass()]
    return _digest(ast.unparse(tree).encode())


def _is_docstring(body: Any) -> bool:
    first = body[0] if body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _bytecode(value: Any) -> bytes:
    if isinstance(value, type):
        parts = [
            _bytecode(member) for _, member in sorted(vars(value).items()) if hasattr(member, "__code__")
        ]
        return b"".join(parts)
    code = getattr(value, "__code__", None)
    if code is None:
        return _qualified(value).encode()
    return _code_bytes(code)


def _code_bytes(code: types.CodeType) -> bytes:
    inner = [
        _code_bytes(constant) if isinstance(constant, types.CodeType) else repr(constant).encode()
        for constant in code.co_consts
    ]
    return code.co_code + b"".join(inner) + repr(code.co_names).encode()


def _array(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        try:
            data = tensor_bytes(value.detach().cpu())
        except (RuntimeError, NotImplementedError, TypeError):
            return f"{type(value).__name__} {value.dtype} {tuple(value.shape)}"
        return f"tensor {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)} {_digest(data)}"
    array = np.asarray(value)
    if array.dtype.hasobject:
        return f"array {array.dtype} {array.shape} {_digest(repr(array.tolist()).encode())}"
    flat = np.ascontiguousarray(array).reshape(-1)
    return f"array {array.dtype} {array.shape} {_digest(flat.view(np.uint8) if flat.size else b'')}"


def _digest(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _sources(paths: Iterable[str], beside: Path | None) -> dict[str, str]:
    own = [] if beside is None else [str(beside), f"{beside}.partial"]
    files: dict[str, tuple[int, int]] = {}
    for path in paths:
        for file in _files(path):
            if not any(file == o or file.startswith(o + os.sep) for o in own):
                found = Path(file).stat() if Path(file).exists() else None
                files[file] = (found.st_size, found.st_mtime_ns) if found else (-1, 0)
    if len(files) <= _SHOWN_FILES:
        return {name: _told([(name, stat)]) for name, stat in sorted(files.items())}
    folders: dict[str, list[tuple[str, tuple[int, int]]]] = {}
    for name, stat in sorted(files.items()):
        folders.setdefault(os.path.dirname(name) + os.sep, []).append((name, stat))  # noqa: PTH120
    return {
        folder: f"{_told(inside)}, {_digest(repr(inside).encode())}" for folder, inside in folders.items()
    }


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)  # noqa: PTH118 - a million of them


def _told(files: Sequence[tuple[str, tuple[int, int]]]) -> str:
    if any(size < 0 for _, (size, _) in files):
        return "missing"
    total = sum(size for _, (size, _) in files)
    name, (_, mtime) = max(files, key=lambda file: file[1][1])
    when = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(mtime // 10**9))}.{mtime % 10**9:09} UTC"
    if len(files) == 1:
        return f"{total} bytes, modified {when}"
    return f"{len(files)} files, {total} bytes, newest {Path(name).name} of {when}"
