"""A parsed file: its nodes in order, their characters, what runs at a place, what a name means."""

from __future__ import annotations

import ast
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, TypeVar

from hotloop.source.nodes import FUNCTIONS, Function, last_name
from hotloop.source.scopes import Binding, Scopes
from hotloop.source.text import Text

Node = TypeVar("Node", bound=ast.AST)

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
#: Nodes without a place, shared by all that have them.
_MARKS: Final = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
#: What is written in another order than its fields have.
_MIXED: Final = (ast.Dict, ast.Call, ast.arguments, ast.MatchMapping, ast.ClassDef)
_IN_ORDER: Final = {
    ast.FunctionDef: ("decorator_list", "args", "returns", "body"),
    ast.AsyncFunctionDef: ("decorator_list", "args", "returns", "body"),
    ast.IfExp: ("body", "test", "orelse"),
}
#: Where a class is defined, under the name by which everyone imports it.
_CANONICAL: Final = {
    "torch.utils.data.dataloader.": "torch.utils.data.",
    "torch.utils.data.dataset.": "torch.utils.data.",
    "torch.utils.data.distributed.": "torch.utils.data.",
    "torch.nn.parallel.distributed.": "torch.nn.parallel.",
    "torch.nn.utils.clip_grad.": "torch.nn.utils.",
    "torch.cuda.amp.grad_scaler.": "torch.cuda.amp.",
    "torch.cuda.amp.autocast_mode.": "torch.cuda.amp.",
    "torch.amp.grad_scaler.": "torch.amp.",
    "torch.amp.autocast_mode.": "torch.amp.",
}


@lru_cache(maxsize=256)
def parsed(text: str) -> ast.Module | None:
    """The syntax tree of a text, None where it does not parse. Nobody may change it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the user's strings
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@lru_cache(maxsize=256)
def code_of(text: str, path: str = "") -> Code | None:
    """A text as code, None where it does not parse."""
    try:
        return Code(Text(path=Path(path), text=text))
    except ValueError:
        return None


class Tree:
    """The nodes of a file. Positions are characters of ``text.text``. Raises ValueError for no Python."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.path = text.path
        tree = parsed(text.text)
        if tree is None:
            raise ValueError(f"{text.path} does not parse")
        self.module = tree
        #: Every node's parent.
        self.parents: dict[ast.AST, ast.AST] = {}
        self._is_ascii = text.text.isascii()
        self._of_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self._ordered: list[ast.AST] = []
        self._within: dict[ast.AST, tuple[int, int]] = {}  # where a node and all below it stand in the order
        self._walk()

    def _walk(self) -> None:
        parents, ordered = self.parents, self._ordered
        first: dict[ast.AST, int] = {}
        stack: list[ast.AST] = [self.module]
        while stack:
            node = stack.pop()
            if node in first:  # all below it are in
                self._within[node] = first[node], len(ordered)
                continue
            first[node] = len(ordered)
            ordered.append(node)
            below = _children(node)
            for child in below:
                parents[child] = node
            stack += [node, *reversed(below)]

    # -- positions ---------------------------------------------------------------------------------------

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(found.end() for found in _LINE_END.finditer(self.text.text))]

    def offset(self, line: int, col: int) -> int:
        """The character at a line, from 1, and a column in UTF-8 bytes."""
        start = self._starts[line - 1]
        if self._is_ascii:
            return start + col
        end = self._starts[line] if line < len(self._starts) else len(self.text.text)
        return start + len(self.text.text[start:end].encode()[:col].decode(errors="ignore"))

    def span(self, node: ast.AST) -> tuple[int, int]:
        """First character of a node and the one behind its last; parentheses around it are left out.

        A tuple's and a generator's own parentheses belong to it, a decorator not to its function.
        """
        if isinstance(node, ast.Module):
            return 0, len(self.text.text)
        return self.offset(*self.begin(node)), self.offset(*self.end(node))

    def source(self, node: ast.AST) -> str:
        """What stands in the file for a node."""
        start, end = self.span(node)
        return self.text.text[start:end]

    def line(self, node: ast.AST) -> int:
        """The line a node begins in, from 1."""
        return self.begin(node)[0]

    def begin(self, node: ast.AST) -> tuple[int, int]:
        """Line and column a node begins at; the column in UTF-8 bytes, as code objects count."""
        if hasattr(node, "lineno"):
            return node.lineno, node.col_offset  # type: ignore[attr-defined]
        return min((self.begin(child) for child in _children(node)), default=(1, 0))

    def end(self, node: ast.AST) -> tuple[int, int]:
        """Line and column behind a node."""
        if hasattr(node, "end_lineno"):
            return node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return max((self.end(child) for child in _children(node)), default=(1, 0))

    def line_start(self, offset: int) -> int:
        """Where the line of a character begins."""
        return self.text.text.rfind("\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """Where the line of a character ends, before its line end."""
        end = self.text.text.find("\n", offset)
        end = len(self.text.text) if end < 0 else end
        return end - 1 if end > offset and self.text.text[end - 1] == "\r" else end

    def indent(self, offset: int) -> str:
        """The blanks that the line of a character begins with."""
        line = self.text.text[self.line_start(offset) : self.line_end(offset)]
        return line[: len(line) - len(line.lstrip())]

    # -- nodes -------------------------------------------------------------------------------------------

    def nodes(self, kind: type[Node] | tuple[type[Node], ...], under: ast.AST | None = None) -> list[Node]:
        """Every node of a kind, of all or of those under another (itself among them), in the file's order."""
        if under is not None and under is not self.module:
            start, end = self._within[under]
            return [node for node in self._ordered[start:end] if isinstance(node, kind)]
        if isinstance(kind, tuple):
            return [node for node in self._ordered if isinstance(node, kind)]
        if kind not in self._of_kind:
            self._of_kind[kind] = [node for node in self._ordered if isinstance(node, kind)]
        return self._of_kind[kind]  # type: ignore[return-value]

    def under(self, node: ast.AST) -> list[ast.AST]:
        """A node and all below it, in the file's order."""
        start, end = self._within[node]
        return self._ordered[start:end]

    def holds(self, outer: ast.AST, node: ast.AST) -> bool:
        """Whether a node is another or stands in it."""
        start, end = self._within[outer]
        return start <= self._within[node][0] < end

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, innermost first."""
        above = self.parents.get(node)
        while above is not None:
            yield above
            above = self.parents.get(above)

    def above(self, node: ast.AST, kind: type[Node] | tuple[type[Node], ...]) -> Node | None:
        """The innermost node of a kind around another."""
        return next((one for one in self.ancestors(node) if isinstance(one, kind)), None)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function a node stands in."""
        return self.above(node, FUNCTIONS)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class a node stands in."""
        return self.above(node, ast.ClassDef)

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The statement that a node is, or is part of."""
        return node if isinstance(node, ast.stmt) else self.above(node, ast.stmt)

    def block_of(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that a statement stands among."""
        above = self.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            found = getattr(above, name, None)
            if isinstance(found, list) and statement in found:
                return found
        return [statement]

    def calls(self, name: str) -> list[ast.Call]:
        """Calls by the last part of what is called."""
        return self._calls.get(name, [])

    @cached_property
    def _calls(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.nodes(ast.Call):
            found[last_name(call.func)].append(call)
        return found

    def call_at(
        self, line: int, col: int, end: tuple[int, int] | None = None, name: str = ""
    ) -> ast.Call | None:
        """The call that runs at a place; None where several could be it.

        ``col`` counts UTF-8 bytes, -1 unknown; ``end`` is where the call ends; ``name`` what it should call.
        """
        calls = [call for call in self.nodes(ast.Call) if self.line(call) <= line <= self.end(call)[0]]
        found = [call for call in calls if end is not None and self.end(call) == end]
        found = found or [call for call in calls if self.begin(call) == (line, col)]
        if not found and col < 0:
            found = [call for call in calls if self.line(call) == line]
        if len(found) > 1 and name:
            found = [call for call in found if last_name(call.func) == name]
        return found[0] if len(found) == 1 else None

    def function_at(self, name: str, line: int) -> Function | None:
        """The function of a code object: by its name, and the line of ``def`` or of its first decorator."""
        for function in self.nodes(FUNCTIONS):
            first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
            if function.name == name.rpartition(".")[2] and line in (first, function.lineno):
                return function
        return None

    def at_line(self, line: int) -> list[ast.stmt]:
        """The statements that contain a line, outermost first."""
        return [one for one in self.nodes(ast.stmt) if one.lineno <= line <= (one.end_lineno or one.lineno)]


class Code(Tree):
    """A parsed file: its nodes, and what its names mean. Raises ValueError where it does not parse."""

    @cached_property
    def scopes(self) -> Scopes:
        """What every name is bound to."""
        return Scopes(self.module, self.parents)

    def bindings(self, node: ast.AST, name: str) -> list[Binding]:
        """What a name is bound to where a node stands; built-ins have none."""
        return self.scopes.bindings(node, name)

    def global_names(self, name: str) -> list[Binding]:
        """What a name is bound to in the module."""
        return list(self.scopes.module.bindings.get(name, ()))

    def references(self, binding: Binding) -> list[ast.Name]:
        """The reads that may mean what a binding gives its name."""
        return self.scopes.references(binding)

    def qualified(self, node: ast.AST | None) -> str:
        """The imported thing an expression names, in full: ``torch.utils.data.DataLoader``; "" for all else.

        What is imported relatively begins with dots. A built-in is not imported: see ``builtin``.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        names = {one.imported for one in self.bindings(node, node.id)}
        root = names.pop() if len(names) == 1 else ""
        if not root:
            return ""
        whole = ".".join([root, *reversed(parts)])
        if whole.startswith("torch."):
            for prefix, plain in _CANONICAL.items():
                if whole.startswith(prefix):
                    return plain + whole.removeprefix(prefix)
        return whole

    def builtin(self, node: ast.AST | None) -> str:
        """The name of a built-in that nothing in the file binds, "" for all else."""
        return node.id if isinstance(node, ast.Name) and not self.bindings(node, node.id) else ""


def _children(node: ast.AST) -> list[ast.AST]:
    """What stands directly in a node, in the order of the file."""
    found: list[ast.AST] = []
    for name in _IN_ORDER.get(type(node), node._fields):
        value = getattr(node, name, None)
        if isinstance(value, list):
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    found = [one for one in found if not isinstance(one, _MARKS)]
    if isinstance(node, _MIXED):
        found.sort(key=lambda one: (one.lineno, one.col_offset))  # type: ignore[attr-defined]
    return found
