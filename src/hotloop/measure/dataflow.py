"""What a statement of the training loop is for, read from its source by following names.

Flow-sensitive where it costs little, otherwise conservative: what is not understood has no role.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
#: ``model``, ``backward``, ``update``, ``fetch``: the statement reaches that call; others as ``steps.Role``.
Purpose = Literal["model", "backward", "update", "fetch", "input", "forward", "metrics", "other"]


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
    node: ast.AST
    returns: bool = False
    calls: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Spots of one function through which the observed calls are reached."""

    forward: frozenset[Spot] = frozenset()
    backward: frozenset[Spot] = frozenset()
    update: frozenset[Spot] = frozenset()
    fetch: frozenset[Spot] = frozenset()
    frozen: frozenset[Spot] = (
        frozenset()
    )  # forwards without gradients: a teacher, a target network, an encoder

    @property
    def lines(self) -> frozenset[int]:
        """Their lines."""
        return frozenset(line for line, _ in self.forward | self.backward | self.update | self.fetch)


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function (or module) of the training loop, with the purpose of each of its statements."""

    statements: tuple[Statement, ...]
    purposes: tuple[Purpose, ...]
    loop_line: int | None = None

    def statement(self, line: int) -> Statement | None:
        """The smallest statement around a line."""
        at = holders(self.statements, (line, -1))
        return self.statements[at[0]] if at else None

    def purposes_at(self, spot: Spot) -> tuple[Purpose, ...]:
        """What the statements at a spot are for: one, or several that share its line; empty outside."""
        return tuple(self.purposes[at] for at in holders(self.statements, spot))


@dataclass(frozen=True, kw_only=True)
class Source:
    """A parsed file; ``trainable``: names of parameters without a module, and functions that read them."""

    tree: ast.Module
    functions: Mapping[tuple[str, int], FunctionNode]
    trainable: frozenset[str]

    def function(self, name: str, line: int) -> FunctionNode | None:
        """The function whose code object has this name and first line (a decorator's, where it has one)."""
        if name == "<module>":
            return self.tree
        return self.functions.get((name.rpartition(".")[2], line))


def parse(lines: Sequence[str], optimizers: Iterable[str] = ()) -> Source | None:
    """Parses a file's text; None where it does not parse."""
    try:
        tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError):
        return None
    functions: dict[tuple[str, int], FunctionNode] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name, node.lineno] = node
            for decorator in node.decorator_list:
                functions.setdefault((node.name, decorator.lineno), node)
    return Source(tree=tree, functions=functions, trainable=_trainable(tree, frozenset(optimizers)))


def understand(source: Source, node: FunctionNode, anchors: Anchors) -> Function:
    """Gives every statement of a function its purpose."""
    statements = tuple(_statements(node))
    purposes = _Flow(statements, anchors, source.trainable).purposes()
    loop = innermost_loop(node, anchors.lines)
    return Function(statements=statements, purposes=purposes, loop_line=loop.lineno if loop else None)


def innermost_loop(node: FunctionNode, lines: Iterable[int]) -> ast.For | ast.AsyncFor | ast.While | None:
    """The innermost loop of a function that holds all the lines."""
    wanted = list(lines)
    if not wanted:
        return None
    best: ast.For | ast.AsyncFor | ast.While | None = None
    for child in _own_nodes(node):
        if isinstance(child, ast.For | ast.AsyncFor | ast.While):
            end = child.end_lineno or child.lineno
            holds = all(child.lineno <= line <= end for line in wanted)
            if holds and (best is None or child.lineno >= best.lineno):
                best = child
    return best


class _Flow:
    """Forward and backward reach over the statements of one function."""

    def __init__(
        self, statements: tuple[Statement, ...], anchors: Anchors, trainable: frozenset[str]
    ) -> None:
        self.statements = statements
        self.trainable = trainable
        self.model = self._touched(anchors.forward)
        self.backward = self._touched(anchors.backward)
        self.update = self._touched(anchors.update)
        self.fetch = self._touched(anchors.fetch)
        # A statement that both trains and fetches or updates runs the whole loop: it says nothing.
        self.whole = (self.model | self.backward) & (self.update | self.fetch)
        for anchored in (self.model, self.backward, self.update, self.fetch):
            anchored -= self.whole
        self.frozen = self._touched(anchors.frozen) - self.model - self.backward - self.update - self.whole
        self.dependent = self._dependent(self.model | self.whole, not self.model)
        self.of_frozen = self._dependent(self.frozen, False) if self.frozen else set()

    def _touched(self, spots: frozenset[Spot]) -> set[int]:
        return {found[0] for spot in spots if (found := holders(self.statements, spot))}

    def purposes(self) -> tuple[Purpose, ...]:
        loss = self._loss()
        inputs = self._inputs(loss)
        after_update = min(self.update, default=len(self.statements))
        result: list[Purpose] = []
        for i in range(len(self.statements)):
            if i in self.whole:
                result.append("other")
            elif i in self.model or i in self.frozen:
                result.append("model")
            elif i in self.backward:
                result.append("backward")
            elif i in self.update:
                result.append("update")
            elif (i in loss and i in self.dependent) or (i in self.of_frozen and i in loss | inputs):
                result.append("forward")
            elif i in self.fetch:
                result.append("fetch")
            elif i in inputs or (i in loss and i < after_update):
                result.append("input")
            elif i in self.dependent:
                result.append("metrics")
            else:
                result.append("other")
        return tuple(result)

    def _dependent(self, sources: set[int], of_parameters: bool) -> set[int]:
        """Statements that read what was made from the sources' output (or from parameters)."""
        tainted: set[str] = set(self.trainable) if of_parameters else set()
        fixed = frozenset(tainted)
        found: set[int] = set()
        for i, s in enumerate(self.statements):
            if i in sources:
                tainted |= s.sets
            elif (s.reads | (s.calls if fixed else frozenset())) & tainted:
                found.add(i)
                if i not in self.update and i not in self.backward:
                    tainted |= s.sets
            elif isinstance(s.node, ast.Assign | ast.AnnAssign | ast.For):
                tainted -= s.sets - fixed
        return found

    def _loss(self) -> set[int]:
        """Statements that flow into what backward is called on, or into the result where it is elsewhere."""
        ends = self.backward or {i for i, s in enumerate(self.statements) if s.returns and self.model}
        found = set(ends) - self.backward
        for end in ends:
            needed = set(self.statements[end].reads)
            for i in range(end - 1, -1, -1):
                s = self.statements[i]
                if i in self.update:
                    continue
                if s.sets & needed:
                    found.add(i)
                    if i not in self.model:
                        needed |= s.reads
        return found

    def _inputs(self, loss: set[int]) -> set[int]:
        """Statements that reach the model's arguments, also of the next round, not made from its output."""
        needed: set[str] = set()
        for i in self.model:
            needed |= self.statements[i].reads
        for i in loss - self.dependent:
            needed |= self.statements[i].reads
        if not self.model:
            for i in loss | self.backward:
                needed |= self.statements[i].reads
        needed -= self.trainable
        skip = self.model | self.backward | self.update | self.whole | self.dependent
        found: set[int] = set()
        grew = True
        while grew:
            grew = False
            for i, s in enumerate(self.statements):
                if i not in found and i not in skip and s.sets & needed:
                    found.add(i)
                    needed |= s.reads
                    grew = True
        return found


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


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function except those of functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _own_nodes(child)


def _statements(node: FunctionNode) -> Iterator[Statement]:
    for child in _blocks(node):
        yield from _statement(child)


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
            sets, parts, last = _targets(node.target), [node.iter], _head_end(node.iter)
        case ast.While() | ast.If():
            parts, last = [node.test], _head_end(node.test)
        case ast.With() | ast.AsyncWith():
            heads = [item.context_expr for item in node.items]
            parts, last = [*heads], max(_head_end(head) for head in heads)
            for item in node.items:
                sets |= _targets(item.optional_vars) if item.optional_vars else set()
        case ast.Try() | ast.Match():
            return
        case ast.Assign():
            parts = [node.value, *(t for t in node.targets if isinstance(t, ast.Subscript))]
            for target in node.targets:
                sets |= _targets(target)
        case ast.AugAssign() | ast.AnnAssign():
            sets = _targets(node.target)
            parts = [node.value] if node.value else []
            parts += [node.target] if isinstance(node, ast.AugAssign) else []
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=receiver))):
            sets = _targets(receiver)  # a method called for its effect changes its object
    reads: set[str] = set()
    calls: set[str] = set()
    for part in parts:
        for child in [part, *_own_nodes(part)]:
            sets |= _inner_sets(child)
        reads |= _reads(part)
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
        sets=frozenset(sets), reads=frozenset(reads),
        node=node, returns=returns, calls=frozenset(calls),
    )  # fmt: skip


def _head_end(node: ast.expr) -> int:
    return node.end_lineno or node.lineno


def _inner_sets(node: ast.AST) -> set[str]:
    """Names set inside an expression: by ``:=`` and by ``out=``."""
    if isinstance(node, ast.NamedExpr):
        return _targets(node.target)
    if isinstance(node, ast.keyword) and node.arg == "out":
        return _targets(node.value)
    return set()


def _targets(node: ast.AST) -> set[str]:
    """Names that assigning to an expression changes: ``a``, ``self.a``; of ``a.b`` and ``a[i]`` the ``a``."""
    if isinstance(node, ast.Tuple | ast.List):
        return set().union(*(_targets(element) for element in node.elts))
    if isinstance(node, ast.Starred):
        return _targets(node.value)
    name = _name(node)
    return {name} if name else set()


def _name(node: ast.AST) -> str:
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


def _reads(node: ast.AST) -> set[str]:
    """Names whose values an expression uses; names that are only called are no data."""
    found: set[str] = set()
    match node:
        case ast.Call(func=func, args=args, keywords=keywords):
            for part in [*args, *(k.value for k in keywords)]:
                found |= _reads(part)
            if isinstance(func, ast.Attribute) and not _is_self(func.value):
                found |= _reads(func.value)
            elif not isinstance(func, ast.Name | ast.Attribute):
                found |= _reads(func)
        case ast.Name(id=name):
            found.add(name)
        case ast.Attribute(value=value):
            name = _name(node)
            found |= {name} if name else _reads(value)
            if not name or not isinstance(value, ast.Name):
                found |= _reads(value) if not _is_self(value) else set()
        case _:
            for child in ast.iter_child_nodes(node):
                found |= _reads(child)
    return found


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _trainable(tree: ast.Module, optimizers: frozenset[str]) -> frozenset[str]:
    """Names of tensors that are trained without a module, and of functions that read them."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _makes_parameter(node.value):
            for target in node.targets:
                names |= _targets(target)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else _name(node.func)
            if called in optimizers and node.args:
                names |= {name for name in _reads(node.args[0]) if name not in ("self", "cls")}
            if called == "requires_grad_" and isinstance(node.func, ast.Attribute):
                names |= _targets(node.func.value)
    if not names:
        return frozenset()
    for _ in range(2):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict):
                if names & set().union(*(_targets(target) for target in node.targets)):
                    names |= _reads(node.value)
            elif isinstance(node, ast.FunctionDef):
                own = {arg.arg for arg in node.args.args}
                reads = set().union(*(_reads(child) for child in node.body), set()) - own
                if reads & names and any(isinstance(c, ast.Return) and c.value for c in ast.walk(node)):
                    names.add(node.name)
    return frozenset(names)


def _makes_parameter(node: ast.AST) -> bool:
    for child in ast.walk(node):
        if isinstance(child, ast.keyword) and child.arg == "requires_grad":
            return isinstance(child.value, ast.Constant) and child.value.value is True
        if isinstance(child, ast.Call):
            name = child.func.attr if isinstance(child.func, ast.Attribute) else _name(child.func)
            if name in ("Parameter", "requires_grad_"):
                return True
    return False
