"""The names of one loop: where they are bound and read, and what of that is done in each of its steps."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from hotloop.remedy.source.code import Code
from hotloop.remedy.source.conditions import ifs_around
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import value_of

Loop = cst.For | cst.While


class InLoop:
    """A loop and its function."""

    def __init__(self, code: Code, loop: Loop) -> None:
        self.code, self.loop = code, loop
        self.function = code.function_of(loop)

    def bindings(self, name: str) -> list[cst.CSTNode]:
        """Where a name is bound, all in the function of the loop. Raises Cannot."""
        code = self.code
        found = []
        for one in code.assignments(self.loop.body.body[0], name):
            if code.function_of(one.node) is not self.function or isinstance(one.node, cst.Param):
                raise self.cannot(f"{name} is no name of the loop's own", one.node)
            found.append(one.node)
        declared: list[cst.Global | cst.Nonlocal] = [*code.nodes(cst.Global), *code.nodes(cst.Nonlocal)]
        for statement in declared:
            if any(item.name.value == name for item in statement.names):
                raise self.cannot(f"{name} is no name of the loop's own", statement)
        if not found:
            raise self.cannot(f"{name} is no name of the loop's own", self.loop)
        return sorted(found, key=lambda node: code.span(node)[0])

    def accesses(self, name: str) -> list[cst.Name]:
        """Where a name is read, also before it is first bound in the text. Raises Cannot where that is in
        another function: it may run at any time.
        """
        code, bound, found = self.code, set(map(id, self.bindings(name))), []
        for node in code.names():
            if node.value != name or id(node) in bound or not self._is_read(node):
                continue
            if not any(id(one.node) in bound for one in code.assignments(node, name)):
                continue
            if code.function_of(node) is not self.function:
                raise self.cannot(f"{name} is read in another function", node)
            found.append(node)
        return found

    def _is_read(self, node: cst.Name) -> bool:
        """Whether a name stands for its value: it is no attribute, no keyword."""
        above = self.code.parents[node]
        if isinstance(above, cst.Attribute):
            return above.value is node
        if isinstance(above, cst.Arg):
            return above.value is node
        return not (isinstance(above, cst.Param) and above.name is node)

    def given(self, bound: cst.CSTNode) -> cst.BaseExpression:
        """The expression of a binding. Raises Cannot where it is none."""
        above = self.code.parents.get(bound)
        if isinstance(above, cst.AugAssign):
            return above.value
        value = value_of(self.code, bound) if not isinstance(above, cst.NamedExpr) else None
        if value is None:
            raise self.cannot(f"{self.code.source(bound)} is bound in another way", bound)
        return value

    def steps(self, node: cst.CSTNode) -> bool:
        """Whether a node stands in what the loop repeats."""
        return self.code.holds(self.loop.body, node)

    def rare(self, node: cst.CSTNode) -> cst.If | None:
        """The ``if step % N == ...`` of the loop that a node stands under."""
        return each_nth(self.code, node, self.loop)

    def in_end(self, node: cst.CSTNode) -> bool:
        """Whether the loop ends with the statement."""
        return isinstance(self.small(node), cst.Return | cst.Raise)

    def may_wait(self, name: str, node: cst.CSTNode) -> None:
        """Raises Cannot where a name is read in the step itself."""
        if self.rare(node) is None and not self.in_end(node):
            words = " ".join(self.code.source(self.small(node)).split())
            words = words if len(words) <= 60 else words[:57] + "..."
            raise self.cannot(f"{name} is read in every step («{words}»)", node)

    def outer_loop(self) -> cst.CSTNode | None:
        """The outermost loop around the loop, in its function."""
        found: cst.CSTNode | None = None
        above = self.code.parents.get(self.loop)
        while above is not None and not isinstance(above, cst.FunctionDef):
            found = above if isinstance(above, cst.For | cst.While) else found
            above = self.code.parents.get(above)
        return found

    def may_be_kept(self, node: cst.CSTNode) -> bool:
        """Whether a name may hold a tensor where it is read outside of the loop."""
        code = self.code
        at, (begin, end) = code.span(node)[0], code.span(self.loop)
        outer = self.outer_loop()
        if at < begin and (outer is None or not code.holds(outer, node)):
            return False
        since = end if at >= end else code.span(outer)[0] if outer is not None else 0
        assert isinstance(node, cst.Name)
        return not any(
            since <= code.span(one)[0] < at and self.runs_before(one, node)
            for one in self.bindings(node.value)
        )

    def runs_before(self, bound: cst.CSTNode, node: cst.CSTNode) -> bool:
        """Whether what binds has always run by the time of another node: it stands in a block around."""
        code = self.code
        statement = self.line_of(bound)
        if statement is None or code.holds(statement, node) or code.span(node) < code.span(bound):
            return False
        block, around = code.parents.get(statement), code.parents.get(node)
        while around is not None and around is not block:
            around = code.parents.get(around)
        return around is block

    def cannot(self, why: str, node: cst.CSTNode) -> Cannot:
        """What a change is not made for, with the line of a node."""
        return Cannot(why, str(self.code.path), self.code.line(node))

    def line_of(self, bound: cst.CSTNode) -> cst.SimpleStatementLine | None:
        """The line of a binding; None for ``if x: total = 0``, which may not run."""
        statement = self.code.statement_of(bound)
        return statement if isinstance(statement, cst.SimpleStatementLine) else None

    def small(self, node: cst.CSTNode) -> cst.CSTNode:
        """The small statement a node is part of, else the compound one."""
        found: cst.CSTNode = node
        while not isinstance(found, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            found = self.code.parents[found]
        return found

    def grows(self, bound: cst.CSTNode) -> bool:
        """Whether a binding goes on with what was there: ``total += 1``."""
        return isinstance(self.small(bound), cst.AugAssign)


def each_nth(code: Code, node: cst.CSTNode, loop: cst.CSTNode) -> cst.If | None:
    """The ``if step % N == ...`` of a loop that a node stands under."""
    for branch, inside in ifs_around(code, node, loop):
        if inside and any(True for _ in _each_nth(branch.test)):
            return branch
    return None


def _each_nth(test: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(test, cst.BooleanOperation):
        yield from _each_nth(test.left)
        yield from _each_nth(test.right)
    sides: tuple[cst.BaseExpression, ...] = ()
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        sides = (test.expression,)
    elif isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        only = test.comparisons[0]
        sides = (test.left, only.comparator) if isinstance(only.operator, cst.Equal) else ()
    texts = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
    for side in sides:
        if not isinstance(side, cst.BinaryOperation) or not isinstance(side.operator, cst.Modulo):
            continue
        if not isinstance(side.left, texts) and not _is_one(side.right):
            yield side


def _is_one(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Integer) and node.evaluated_value == 1
