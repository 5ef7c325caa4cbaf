"""A Python file located with libcst: which call runs at a column, what a name is bound to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import cached_property
from typing import Final, TypeVar

import libcst as cst
from libcst import metadata as meta

from hotloop.remedy.source.text import Text

Node = TypeVar("Node", bound=cst.CSTNode)
Function = cst.FunctionDef
LITERALS: Final = ("True", "False", "None")


class Code:
    """A parsed file. Positions are characters of ``text.text``. Raises ValueError where it does not parse."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.path = text.path
        try:
            module = cst.parse_module(text.text)
        except (cst.ParserSyntaxError, RecursionError) as error:
            raise ValueError(f"{text.path} does not parse") from error
        self._wrapper = meta.MetadataWrapper(module, unsafe_skip_copy=True)
        self.module = self._wrapper.module
        self._ascii = text.text.isascii()

    @cached_property
    def _spans(self) -> dict[cst.CSTNode, meta.CodeSpan]:
        return dict(self._wrapper.resolve(meta.ByteSpanPositionProvider))

    @cached_property
    def _scopes(self) -> dict[cst.CSTNode, meta.Scope | None]:
        return dict(self._wrapper.resolve(meta.ScopeProvider))

    @cached_property
    def parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        """Every node's parent."""
        return dict(self._wrapper.resolve(meta.ParentNodeProvider))

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        while (at := self._utf8.find(b"\n", starts[-1])) >= 0:
            starts.append(at + 1)
        return starts

    @cached_property
    def _utf8(self) -> bytes:
        return self.text.text.encode()

    # -- positions ---------------------------------------------------------------------------------------

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """First character of a node and the one behind its last; its own parentheses are left out."""
        found = self._spans[node]
        start, end = found.start, found.start + found.length
        if self._ascii:
            return start, end
        return len(self._utf8[:start].decode()), len(self._utf8[:end].decode())

    def source(self, node: cst.CSTNode) -> str:
        """What stands in the file for a node."""
        start, end = self.span(node)
        return self.text.text[start:end]

    def line(self, node: cst.CSTNode) -> int:
        """The line a node begins in, from 1."""
        return self._position(self._spans[node].start)[0]

    def begin(self, node: cst.CSTNode) -> tuple[int, int]:
        """Line and column a node begins at; the column in UTF-8 bytes, as code objects count."""
        return self._position(self._spans[node].start)

    def end(self, node: cst.CSTNode) -> tuple[int, int]:
        """Line and column behind a node."""
        found = self._spans[node]
        return self._position(found.start + found.length)

    def _position(self, at: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, at)
        return line, at - self._line_starts[line - 1]

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

    @cached_property
    def _ordered(self) -> list[cst.CSTNode]:
        return sorted(self._spans, key=lambda node: (self._spans[node].start, -self._spans[node].length))

    @cached_property
    def _begins(self) -> list[int]:
        return [self._spans[node].start for node in self._ordered]

    def nodes(self, kind: type[Node], under: cst.CSTNode | None = None) -> Iterator[Node]:
        """Every node of a kind, in the order of the file."""
        if under is None:
            yield from (node for node in self._ordered if isinstance(node, kind))
            return
        whole = self._spans[under]
        end = whole.start + whole.length
        for place in range(bisect_left(self._begins, whole.start), bisect_right(self._begins, end)):
            node = self._ordered[place]
            if isinstance(node, kind) and self._begins[place] + self._spans[node].length <= end:
                yield node

    def holds(self, outer: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether a node begins within another."""
        start, end = self.span(outer)
        return start <= self.span(node)[0] < end

    def above(self, node: cst.CSTNode, kind: type[Node]) -> Node | None:
        """The innermost node of a kind around another."""
        found = self.parents.get(node)
        while found is not None and not isinstance(found, kind):
            found = self.parents.get(found)
        return found

    def call_at(
        self, line: int, col: int, end: tuple[int, int] | None = None, name: str = ""
    ) -> cst.Call | None:
        """The call that runs at a place; None where several could be it.

        ``col`` counts UTF-8 bytes, -1 unknown; ``end`` is where the call ends; ``name`` what it should call.
        """
        calls = [c for c in self.nodes(cst.Call) if self.line(c) <= line <= self.end(c)[0]]
        found = [c for c in calls if end is not None and self.end(c) == end]
        found = found or [c for c in calls if self.begin(c) == (line, col)]
        if not found and col < 0:
            found = [c for c in calls if self.line(c) == line]
        if len(found) > 1 and name:
            found = [c for c in found if last_name(c.func) == name]
        return found[0] if len(found) == 1 else None

    def function_of(self, node: cst.CSTNode) -> Function | None:
        """The function a node stands in."""
        return self.above(node, cst.FunctionDef)

    def statement_of(self, node: cst.CSTNode) -> cst.SimpleStatementLine | cst.BaseCompoundStatement | None:
        """The whole statement a node is part of."""
        found: cst.CSTNode | None = node
        while found is not None and not isinstance(
            found, cst.SimpleStatementLine | cst.BaseCompoundStatement
        ):
            found = self.parents.get(found)
        return found

    # -- names -------------------------------------------------------------------------------------------

    def assignments(self, node: cst.CSTNode, name: str) -> list[meta.Assignment]:
        """What a name is bound to where a node stands, built-ins left out."""
        at: cst.CSTNode | None = node
        while at is not None and self._scopes.get(at) is None:
            at = self.parents.get(at)
        scope = self._scopes.get(at) if at is not None else None
        found = scope[name] if scope is not None else ()
        return [one for one in found if isinstance(one, meta.Assignment)]

    def global_names(self, name: str) -> list[meta.Assignment]:
        """What a name is bound to in the module."""
        return self.assignments(self.module, name)

    def readers(self, value: cst.CSTNode, name: str) -> list[int]:
        """The lines that read what a name is bound to."""
        found = {access.node for one in self.assignments(value, name) for access in one.references}
        return sorted(self.line(node) for node in found)

    def names(self) -> Iterator[cst.Name]:
        """Every name in the file."""
        return self.nodes(cst.Name)

    def qualified(self, node: cst.CSTNode) -> str:
        """The imported thing an expression names, in full; "" for anything else."""
        parts: list[str] = []
        while isinstance(node, cst.Attribute):
            parts.append(node.attr.value)
            node = node.value
        if not isinstance(node, cst.Name):
            return ""
        names: set[str] = set()
        for one in self.assignments(node, node.value):  # ``import torch`` and ``import torch.optim``: torch
            if not isinstance(one, meta.ImportAssignment):
                return ""
            names.update(q.name for q in one.get_qualified_names_for(node.value))
        root = names.pop() if len(names) == 1 else ""
        return ".".join([root, *reversed(parts)]) if root else ""


def last_name(node: cst.CSTNode) -> str:
    """``DataLoader`` of ``torch.utils.data.DataLoader``."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def is_self(node: cst.CSTNode) -> bool:
    """Whether a node is the name ``self``."""
    return isinstance(node, cst.Name) and node.value == "self"


def argument(call: cst.Call, name: str, position: int | None = None) -> cst.BaseExpression | None:
    """An argument given by keyword or, without a ``*`` before it, by position."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == name:
            return arg.value
    if position is not None and position < len(call.args):
        before = call.args[: position + 1]
        if all(arg.keyword is None and not arg.star for arg in before):
            return call.args[position].value
    return None


def has_spread(call: cst.Call) -> bool:
    """Whether arguments are given by ``*`` or ``**``."""
    return any(arg.star for arg in call.args)


def spread_of(call: cst.Call) -> cst.Arg | None:
    """The first argument given by ``**``."""
    return next((arg for arg in call.args if arg.star == "**"), None)


def literal(node: cst.CSTNode) -> bool:
    """Whether an expression is a plain number, string, True, False or None."""
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.operator, cst.Minus) and literal(node.expression)
    if isinstance(node, cst.Name):
        return node.value in LITERALS
    return isinstance(node, cst.Integer | cst.Float | cst.SimpleString)


def is_member(code: Code, name: cst.Name) -> bool:
    """Whether a name is an attribute's, or a keyword's, and no variable."""
    above = code.parents.get(name)
    return (isinstance(above, cst.Attribute) and above.attr is name) or (
        isinstance(above, cst.Arg) and above.keyword is name
    )
