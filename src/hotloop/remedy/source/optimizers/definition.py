"""The definition of a class, with what it needs of its file, as a text that runs by itself."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hotloop.remedy.source.scene import Cannot, Scene

#: Modules that a definition may use: what they give depends on nothing that the script does.
_MODULES: Final = frozenset([
    "torch", "math", "typing", "typing_extensions", "numpy", "collections", "functools", "itertools", "copy",
    "warnings", "logging", "__future__", "abc", "dataclasses", "contextlib", "numbers", "types", "operator",
    "cmath", "enum",
])  # fmt: skip
#: Of them what depends on the run all the same.
_OF_THE_RUN: Final = frozenset(["distributed", "cuda", "is_cuda", "multiprocessing", "environ", "xpu", "mps"])
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BUILT_IN: Final = frozenset(dir(builtins))


def definition(scene: Scene, path: Path, name: str) -> str:
    """The class ``name`` of a file, everything of that file and others that it needs before it.

    Raises Cannot where it needs what the script computes.
    """
    return "\n".join(_Parts(scene).of(path, name).values())


class _Parts:
    """Statements by the names that they bind, in an order in which they run."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._found: dict[str, str] = {}
        self._from: dict[str, tuple[Path, int]] = {}

    def of(self, path: Path, name: str) -> dict[str, str]:
        """With all that ``name`` needs."""
        self._need(path, name, path, 1)
        future = {"__future__": "from __future__ import annotations"} if self._postponed else {}
        return future | self._found

    _postponed = False

    def _need(self, path: Path, name: str, asking: Path, line: int) -> None:
        text = self._scene.text(path).text
        tree = ast.parse(text)
        bound = [one for one in tree.body if name in _binds(one)]
        if not bound and name in _BUILT_IN:
            return
        if len(bound) != 1:
            words = (
                f"{name} has {'several definitions' if bound else 'no definition of its own in this file'}"
            )
            raise Cannot(words, str(asking), line)
        statement = bound[0]
        at = path, statement.lineno
        if self._from.setdefault(name, at) != at:
            raise Cannot(f"{name} means two things in what the optimizer needs", str(path), statement.lineno)
        if name in self._found:
            return
        if any(name in one.names for one in ast.walk(tree) if isinstance(one, ast.Global)):
            raise Cannot(f"{name} is changed by functions", str(path), statement.lineno)
        self._postponed = self._postponed or "annotations" in _future(tree)
        if isinstance(statement, ast.ImportFrom) and self._users(path, statement) is not None:
            self._imported(path, statement, name)
            return
        self._check(path, statement)
        self._found[name] = ""  # a function may call itself
        for needed, where in _names(statement):
            if needed != name:
                self._need(path, needed, path, where)
        del self._found[name]
        self._found[name] = ast.unparse(statement)

    def _imported(self, path: Path, statement: ast.ImportFrom, name: str) -> None:
        module = self._users(path, statement)
        alias = next(one for one in statement.names if (one.asname or one.name) == name)
        if module is None or alias.asname not in (None, alias.name):
            raise Cannot(f"{name} is imported under another name", str(path), statement.lineno)
        del self._from[name]
        self._need(module, alias.name, path, statement.lineno)

    def _users(self, path: Path, statement: ast.ImportFrom) -> Path | None:
        """The user's file that is imported from."""
        return self._scene.module(statement.module or "", path)

    def _check(self, path: Path, statement: ast.stmt) -> None:
        """Raises Cannot for a statement that may not run apart from the script."""
        line = statement.lineno
        if isinstance(statement, ast.ClassDef) and statement.decorator_list:
            raise Cannot(f"what decorates {statement.name} may use it too", str(path), line)
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            if not _is_plain(statement.value):
                raise Cannot("the optimizer needs what this line computes", str(path), line)
        elif isinstance(statement, ast.Try | ast.If):
            if not all(isinstance(one, ast.Import | ast.ImportFrom) for one in _inside(statement)):
                raise Cannot(
                    "what the optimizer needs of this is not told without running it", str(path), line
                )
        elif not isinstance(statement, (*_FUNCTIONS, ast.Import, ast.ImportFrom)):
            raise Cannot("the optimizer needs what this line computes", str(path), line)
        for node in ast.walk(statement):
            line = getattr(node, "lineno", line)
            for module in _modules(node):
                parts = module.split(".")
                if parts[0] not in _MODULES or _OF_THE_RUN & set(parts):
                    raise Cannot(f"it uses {module or 'a module beside it'}", str(path), line)
            if isinstance(node, ast.Attribute) and node.attr in _OF_THE_RUN:
                words = f"what it does depends on the machine or other ranks ({node.attr})"
                raise Cannot(words, str(path), line)
            if isinstance(node, ast.Global):
                raise Cannot("it changes a global variable", str(path), line)


def _modules(node: ast.AST) -> list[str]:
    """What an import names; "" for one from a module beside it."""
    if isinstance(node, ast.Import):
        return [one.name for one in node.names]
    if isinstance(node, ast.ImportFrom):
        return [""] if node.level else [f"{node.module}.{one.name}" for one in node.names]
    return []


def _future(tree: ast.Module) -> set[str]:
    return {
        one.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for one in node.names
    }


def _inside(statement: ast.Try | ast.If) -> Iterator[ast.stmt]:
    blocks = [statement.body, statement.orelse]
    if isinstance(statement, ast.Try):
        blocks += [statement.finalbody, *(one.body for one in statement.handlers)]
    for block in blocks:
        yield from (one for one in block if not isinstance(one, ast.Pass))


def _binds(statement: ast.stmt) -> set[str]:
    """The names that a statement of a module gives a value."""
    if isinstance(statement, _FUNCTIONS):
        return {statement.name}
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(one.asname or one.name).partition(".")[0] for one in statement.names}
    found = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _stored(node)}
    for node in ast.walk(statement):
        if isinstance(node, (*_FUNCTIONS,)):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).partition(".")[0] for one in node.names}
    return found


def _stored(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


def _names(statement: ast.stmt) -> list[tuple[str, int]]:
    """The names of the module that a statement reads; those that its functions bind themselves are none."""
    own: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            given = node.args
            own |= {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
            own |= {one.arg for one in (given.vararg, given.kwarg) if one is not None}
        elif isinstance(node, ast.Name) and _stored(node):
            own.add(node.id)
        elif isinstance(node, (ast.ExceptHandler, *_FUNCTIONS)) and node is not statement:
            own.add(node.name or "")
        elif isinstance(node, ast.Import | ast.ImportFrom) and node is not statement:
            own |= {(one.asname or one.name).partition(".")[0] for one in node.names}
    read = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and not _stored(node)]
    return list({node.id: (node.id, node.lineno) for node in read if node.id not in own}.values())


def _is_plain(node: ast.expr | None) -> bool:
    """Whether a value is the same whenever it is made, and never changes: numbers, types, ``object()``."""
    if node is None or isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Tuple):
        return all(_is_plain(one) for one in node.elts)
    if isinstance(node, ast.UnaryOp):
        return _is_plain(node.operand)
    if isinstance(node, ast.BinOp):
        return _is_plain(node.left) and _is_plain(node.right)
    if isinstance(node, ast.Subscript):
        return _is_plain(node.value)  # Callable[[], float]
    if isinstance(node, ast.Call):
        made = ast.unparse(node.func)
        return made in ("object", "logging.getLogger", "getLogger", "TypeVar", "typing.TypeVar")
    return isinstance(node, ast.Name | ast.Attribute)
