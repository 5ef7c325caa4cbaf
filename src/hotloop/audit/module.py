"""One audited file: parsed code, and the names it is shown and imported under."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from hotloop.source.code import Code
from hotloop.source.nodes import FUNCTIONS, Function
from hotloop.source.text import Text


class Module(Code):
    """A file of the audited tree. ``name`` is shown, ``dotted_name`` imported."""

    def __init__(self, text: Text, name: str, dotted_name: str) -> None:
        super().__init__(text)
        self.name = name
        self.dotted_name = dotted_name

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method."""
        return self.nodes(FUNCTIONS)

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Every class."""
        return self.nodes(ast.ClassDef)

    def own(self, name: str) -> Function | None:
        """The last function of that name at the top level of the file."""
        found = [one for one in self.module.body if isinstance(one, FUNCTIONS) and one.name == name]
        return found[-1] if found else None

    def dotted(self, node: ast.AST | None) -> str:
        """The imported or built-in thing an expression names, in full; "" for all else."""
        return self.qualified(node) or self.builtin(node)

    def enclosing(self, node: ast.AST) -> Function | None:
        """The function that a node is, or stands in."""
        return node if isinstance(node, FUNCTIONS) else self.function_of(node)

    def calls_to(self, *dotted: str) -> Iterator[ast.Call]:
        """Calls of imported and built-in things by their full names."""
        for whole in dotted:
            last = whole.rpartition(".")[2]
            aliases = [one.asname for one in self.nodes(ast.alias) if one.asname and one.name.endswith(last)]
            for name in dict.fromkeys([last, *aliases]):
                yield from (call for call in self.calls(name) if self.dotted(call.func) == whole)
