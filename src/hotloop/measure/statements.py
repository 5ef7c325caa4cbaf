"""Statements of a function, each with the names it sets and reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
#: Attributes and methods of a tensor that tell nothing of its values.
_SHAPES = frozenset(["shape", "size", "dim", "ndim", "numel", "device", "dtype"])
#: Methods that give a tensor's values without torch: no gradient comes through them.
_LEAVE_TORCH = frozenset(["numpy", "item", "tolist"])
#: A call's line and column (UTF-8 bytes); column -1 where it is not known.
Spot = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A simple statement or the head of a compound one: its lines, the names it sets and reads."""

    first: int
    last: int
    begins: Spot = (0, 0)  # where its text begins and ends: several statements can share a line
    ends: Spot = (0, 0)
    sets: frozenset[str]
    reads: frozenset[str]
    values: frozenset[str] = frozenset()  # of ``reads`` those of which more than the shape is used
    tensors: frozenset[str] = frozenset()  # of ``values`` those used as what they are, in torch
    node: ast.AST
    returns: bool = False
    calls: frozenset[str] = frozenset()


def holders(statements: Sequence[Statement], spot: Spot) -> list[int]:
    """The smallest statement around a spot; all of those that share its line where the column cannot tell."""
    line, column = spot
    around = [i for i, s in enumerate(statements) if s.first <= line <= s.last]
    if column >= 0:
        exact = [i for i in around if statements[i].begins <= spot < statements[i].ends]
        if exact:
            return [max(exact, key=lambda i: statements[i].begins)]
    smallest = min((statements[i].last - statements[i].first for i in around), default=0)
    return [i for i in around if statements[i].last - statements[i].first == smallest]


def around(statements: Sequence[Statement], line: int) -> list[int]:
    """The compound statements whose bodies hold a line: it runs because of them."""
    compound = (ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith)
    return [
        i
        for i, s in enumerate(statements)
        if isinstance(s.node, compound) and s.last < line <= (s.node.end_lineno or 0)
    ]


def made_anew(statements: Sequence[Statement], at: int) -> frozenset[str]:
    """Names that each round of the innermost loop around a statement assigns."""
    heads = [i for i in around(statements, statements[at].first) if _is_loop(statements[i].node)]
    if not heads:
        return frozenset()
    loop = statements[max(heads, key=lambda i: statements[i].begins)]
    last = getattr(loop.node, "end_lineno", None) or loop.last
    return frozenset().union(
        *(
            s.sets
            for s in statements
            if loop.first <= s.first <= last
            and isinstance(s.node, ast.Assign | ast.AnnAssign | ast.For | ast.AsyncFor)
        )
    )


def _is_loop(node: ast.AST) -> bool:
    return isinstance(node, ast.For | ast.AsyncFor | ast.While)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function except those of functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from own_nodes(child)


def statements_of(node: FunctionNode) -> Iterator[Statement]:
    """Every statement of a function in source order, without those of functions inside it."""
    for child in _blocks(node):
        yield from _statement(child)


def of_modules(statement: Statement, modules: Set[str]) -> Statement:
    """A statement that calls a module's function for its effect changes what it gives it, not the module."""
    match statement.node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver), args=args)):
            if (name := base_name(receiver)) in modules:
                given = {arg.id for arg in args if isinstance(arg, ast.Name)}
                return replace(statement, sets=statement.sets - {name} | given)
    return statement


def _blocks(node: ast.AST) -> Iterator[ast.stmt]:
    """Statements in source order, compound ones before their bodies."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, name, ()):
            if isinstance(child, ast.stmt):
                yield child
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    continue
            yield from _blocks(child)


def _statement(node: ast.stmt) -> Iterator[Statement]:
    last = node.end_lineno or node.lineno
    sets: set[str] = set()
    parts: list[ast.AST] = [node]
    heads: list[ast.expr] = []
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return
        case ast.For() | ast.AsyncFor():
            sets, parts, last = names_set(node.target), [node.iter], _head_end(node.iter)
        case ast.While() | ast.If():
            parts, last = [node.test], _head_end(node.test)
        case ast.With() | ast.AsyncWith():
            heads = [item.context_expr for item in node.items]
            parts, last = [*heads], max(_head_end(head) for head in heads)
            for item in node.items:
                sets |= names_set(item.optional_vars) if item.optional_vars else set()
        case ast.Try() | ast.Match():
            return
        case ast.Assign():
            parts = [node.value, *(t for t in node.targets if isinstance(t, ast.Subscript))]
            for target in node.targets:
                sets |= names_set(target)
        case ast.AugAssign() | ast.AnnAssign():
            sets = names_set(node.target)
            parts = [node.value] if node.value else []
            parts += [node.target] if isinstance(node, ast.AugAssign) else []
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver))):
            sets = names_set(receiver)  # a method called for its effect changes its object
    reads: set[str] = set()
    values: set[str] = set()
    tensors: set[str] = set()
    calls: set[str] = set()
    for part in parts:
        for child in [part, *own_nodes(part)]:
            sets |= _inner_sets(child)
        reads |= names_read(part)
        values |= names_read(part, shapes=False)
        tensors |= names_read(part, shapes=False, left=False)
        calls |= {
            c.func.id for c in ast.walk(part) if isinstance(c, ast.Call) and isinstance(c.func, ast.Name)
        }
    returns = isinstance(node, ast.Return) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Yield | ast.YieldFrom)
    )
    yield Statement(
        first=node.lineno, last=max(last, node.lineno),
        begins=(node.lineno, node.col_offset),
        ends=(node.end_lineno or node.lineno, node.end_col_offset or 0),
        sets=frozenset(sets), reads=frozenset(reads), values=frozenset(values), tensors=frozenset(tensors),
        node=node, returns=returns, calls=frozenset(calls),
    )  # fmt: skip


def _head_end(node: ast.expr) -> int:
    return node.end_lineno or node.lineno


def _inner_sets(node: ast.AST) -> set[str]:
    """Names set inside an expression: by ``:=`` and by ``out=``."""
    if isinstance(node, ast.NamedExpr):
        return names_set(node.target)
    if isinstance(node, ast.keyword) and node.arg == "out":
        return names_set(node.value)
    return set()


def names_set(node: ast.AST) -> set[str]:
    """Names that assigning to an expression changes: ``a``, ``self.a``; of ``a.b`` and ``a[i]`` the ``a``."""
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*(names_set(element) for element in node.elts))
    if isinstance(node, ast.Starred):
        return names_set(node.value)
    name = base_name(node)
    return {name} if name else set()


def base_name(node: ast.AST) -> str:
    """``x`` for ``x``, ``x.y``, ``x[i]``, ``x.f(...)``; ``self.x`` below ``self``."""
    attribute = ""
    while True:
        match node:
            case ast.Name(id=name):
                return f"{name}.{attribute}" if name in ("self", "cls") and attribute else name
            case ast.Attribute(value=value, attr=attr):
                attribute, node = attr, value
            case ast.Subscript(value=value) | ast.Starred(value=value):
                node = value
            case ast.Call(func=func):
                node = func
            case _:
                return ""


def names_read(node: ast.AST, *, shapes: bool = True, left: bool = True) -> set[str]:
    """Names whose values an expression uses, or (``shapes``) only their shape; only called is not used.

    Without ``left`` those are not in it whose values leave torch (``.numpy()``, ``.item()``).
    """
    found: set[str] = set()

    def read(part: ast.AST) -> set[str]:
        return names_read(part, shapes=shapes, left=left)

    match node:
        case ast.Call(func=ast.Name(id="len")) if not shapes:
            pass
        case ast.Attribute(attr=attr) if not shapes and attr in _SHAPES:
            pass
        case ast.Call(func=ast.Attribute(attr=attr)) if not left and attr in _LEAVE_TORCH:
            pass
        case ast.Call(func=func, args=args, keywords=keywords):
            for part in [*args, *(k.value for k in keywords)]:
                found |= read(part)
            if isinstance(func, ast.Attribute) and not _is_self(func.value):
                found |= read(func if func.attr in _SHAPES else func.value)
            elif not isinstance(func, ast.Name | ast.Attribute):
                found |= read(func)
        case ast.Name(id=name):
            found.add(name)
        case ast.Attribute(value=value):
            name = base_name(node)
            found |= {name} if name else read(value)
            if not name or not isinstance(value, ast.Name):
                found |= read(value) if not _is_self(value) else set()
        case _:
            for child in ast.iter_child_nodes(node):
                found |= read(child)
    return found


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")
