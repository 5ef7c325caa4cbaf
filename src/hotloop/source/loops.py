"""Loops over batches: the one around given lines, parts of a batch never read."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from hotloop.source.code import Code, code_of
from hotloop.source.flow import loops_around
from hotloop.source.nodes import FUNCTIONS, LOOPS, Function, Loop

#: Whoever calls one of these may read any variable.
_READ_ALL = frozenset(["locals", "vars", "globals", "eval", "exec"])


def loop_around(code: Code, lines: Sequence[int]) -> Loop | None:
    """The innermost loop of one function that all the lines stand in, its head among them."""
    shared: list[Loop] | None = None
    for line in lines:
        around = _around(code, line)
        shared = around if shared is None else [loop for loop in shared if loop in around]
    return shared[0] if shared else None


def _around(code: Code, line: int) -> list[Loop]:
    statements = code.at_line(line)
    if not statements:
        return []
    own = [statements[-1]] if isinstance(statements[-1], LOOPS) else []
    return [*own, *loops_around(code, statements[-1])]


def unread_parts(code: Code, function: ast.AST, line: int) -> set[str]:
    """Positions in the batch whose variable a function never reads: ``for x, y, extra in loader``."""
    heads = [one for one in code.nodes(ast.For, function) if one.lineno <= line <= (one.iter.end_lineno or 0)]
    loaded = {one.id for one in code.nodes(ast.Name, function) if isinstance(one.ctx, ast.Load)}
    if not heads or loaded & _READ_ALL:
        return set()
    target = _unpacked(code, heads[-1], _batch_target(heads[-1]))
    if not isinstance(target, ast.Tuple | ast.List) or any(isinstance(e, ast.Starred) for e in target.elts):
        return set()
    return {str(i) for i, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id not in loaded}


def _batch_target(head: ast.For) -> ast.expr | None:
    """The variable that takes the batch: inside ``enumerate`` the second; None where unclear."""
    iterated = head.iter
    if isinstance(iterated, ast.Call):
        name = iterated.func.id if isinstance(iterated.func, ast.Name) else ""
        if name == "enumerate":
            target = head.target
            return target.elts[1] if isinstance(target, ast.Tuple) and len(target.elts) == 2 else None
        if name == "zip":
            return None
    return head.target


def _unpacked(code: Code, head: ast.For, target: ast.expr | None) -> ast.expr | None:
    """``a, b, c`` of ``a, b, c = batch`` where that is all that is done with the loop variable."""
    if not isinstance(target, ast.Name):
        return target
    uses = [n for part in head.body for n in code.nodes(ast.Name, part) if n.id == target.id]
    above = code.parents.get(uses[0]) if len(uses) == 1 else None
    single = isinstance(above, ast.Assign) and above.value is uses[0] and len(above.targets) == 1
    return above.targets[0] if isinstance(above, ast.Assign) and single else None


# As text: for what is told by words


@dataclass(frozen=True, kw_only=True)
class LoopText:
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
def loops_at(text: str, line: int) -> tuple[LoopText, ...]:
    """The loops of the line's own function that contain the line, innermost first."""
    loops: list[LoopText] = []
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
                LoopText(
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
