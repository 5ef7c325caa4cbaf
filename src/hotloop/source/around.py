"""What stands around a line: its function, and the loops of that function that contain it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

from hotloop.source.code import code_of
from hotloop.source.nodes import FUNCTIONS, Function


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A ``for`` or ``while`` in the user's source. ``over`` is what it runs over, "" for ``while``.

    ``structural``: it runs over parts of an object (``self.layers``) or calls them (``layer(x)``,
    ``self.layers[i](x)``).
    """

    line: int
    end_line: int
    over: str
    text: str  # the whole loop
    structural: bool


@lru_cache(maxsize=1024)
def loops_at(text: str, line: int) -> tuple[Loop, ...]:
    """The loops of the line's own function that contain the line, innermost first."""
    loops: list[Loop] = []
    for node in _statements(text, line):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            loops.clear()
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            over = "" if isinstance(node, ast.While) else ast.unparse(node.iter)
            ends = [] if isinstance(node, ast.While) else list(ast.walk(node.target))
            names = {one.id for one in ends if isinstance(one, ast.Name)}
            body = _lines(text, node)
            called = any(re.search(rf"((?<![\w.]){name}|self\.\w+\[{name}\])\(", body) for name in names)
            loops.append(
                Loop(
                    line=node.lineno,
                    end_line=node.end_lineno or node.lineno,
                    over=over,
                    text=body,
                    structural=called or re.search(r"\bself\.", over) is not None,
                )
            )
    return tuple(reversed(loops))


def function_at(text: str, line: int) -> str:
    """The text of the innermost function around a line, "" at module level or where it does not parse."""
    around = [node for node in _statements(text, line) if isinstance(node, FUNCTIONS)]
    return _lines(text, around[-1]) if around else ""


def definitions(text: str, names: Collection[str]) -> list[str]:
    """The texts of the functions and classes of these names; a class without its ``__init__``."""
    code = code_of(text)
    if code is None:
        return []
    nodes: list[Function | ast.ClassDef] = [*code.nodes(FUNCTIONS), *code.nodes(ast.ClassDef)]
    return [_without_init(text, node) for node in nodes if node.name in names]


def _without_init(text: str, node: Function | ast.ClassDef) -> str:
    """What a class does once, when it is made, is left out."""
    inits = [one for one in node.body if isinstance(one, FUNCTIONS) and one.name == "__init__"]
    whole = _lines(text, node)
    for one in inits if isinstance(node, ast.ClassDef) else ():
        whole = whole.replace(_lines(text, one), "")
    return whole


def _statements(text: str, line: int) -> list[ast.stmt]:
    code = code_of(text)
    return code.at_line(line) if code is not None else []


def _lines(text: str, node: ast.stmt) -> str:
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
