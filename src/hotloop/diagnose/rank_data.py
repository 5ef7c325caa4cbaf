"""Whether the samples of a loader are a rank's own, as far as the source tells."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import sources
from hotloop.measure.steps import LoaderUse
from hotloop.written import Function, tree_of

_RANK = re.compile(r"(^|_)(ranks?|process_index)(_|$)", re.IGNORECASE)
_GROWS = {"append", "extend", "add", "insert", "update"}


def is_made_for_rank(evidence: Evidence, loader: LoaderUse) -> bool:
    """Whether a rank is named in what the dataset is made from: ``Shard(rank)``, ``files[rank::4]``."""
    trees = {file: tree for file, text in sources(evidence).items() if (tree := tree_of(text)) is not None}
    tree = trees.get(loader.where.file) if loader.where is not None else None
    if tree is None or loader.where is None:
        return False
    line = loader.where.line
    written = _Written(trees)
    return any(
        written.names_rank(data)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and call.lineno <= line <= (call.end_lineno or line)
        and "loader" in _called(call).lower() and (data := _dataset(call)) is not None
    )  # fmt: skip


class _Written:
    """The user's files, and what an expression in them is made from."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._trees = tuple(trees.values())
        self._above: dict[int, ast.AST] = {}
        self._named: dict[str, list[ast.AST]] = defaultdict(list)
        for tree in self._trees:
            for node in ast.walk(tree):
                self._above |= {id(below): node for below in ast.iter_child_nodes(node)}
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self._named[node.name].append(node)

    def names_rank(self, start: ast.AST) -> bool:
        """Whether a rank is named in an expression, or in any that it is made from."""
        todo, seen = [start], set[int]()
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            for part in ast.walk(node):
                if _is_rank(part):
                    return True
                todo += self._behind(part)
        return False

    def _behind(self, part: ast.AST) -> list[ast.AST]:
        if isinstance(part, ast.Attribute):
            return [*self._assigned(self._scopes(part)[-1], part.attr), *self._named[part.attr]]
        if not isinstance(part, ast.Name):
            return []
        for scope in self._scopes(part):
            if isinstance(scope, ast.ClassDef):
                continue
            found = [*self._given(scope, part.id), *self._passed(scope, part.id)]
            if found:
                return found
        return self._named[part.id]

    def _scopes(self, node: ast.AST) -> list[ast.AST]:
        """The functions and classes a node stands in, innermost first, and its module."""
        around = [node]
        while id(around[-1]) in self._above:
            around.append(self._above[id(around[-1])])
        return [one for one in around[1:] if isinstance(one, Function | ast.ClassDef | ast.Module)]

    def _given(self, scope: ast.AST, name: str) -> Iterator[ast.AST]:
        """What a name of a scope is assigned or added, and on what condition."""
        for node in ast.walk(scope):
            if isinstance(node, ast.Name) and node.id == name and self._scopes(node)[0] is scope:
                statement = self._statement(node)
                if isinstance(node.ctx, ast.Store) or _grows(self._above[id(node)]):
                    yield from _right(statement)
                    yield from self._conditions(statement, scope)

    def _assigned(self, module: ast.AST, attribute: str) -> Iterator[ast.AST]:
        for node in ast.walk(module):
            if isinstance(node, ast.Attribute) and node.attr == attribute and isinstance(node.ctx, ast.Store):
                yield from _right(self._statement(node))

    def _passed(self, scope: ast.AST, name: str) -> Iterator[ast.AST]:
        """What callers of a function give for a parameter."""
        if not isinstance(scope, Function):
            return
        names = [one.arg for one in (*scope.args.posonlyargs, *scope.args.args)]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        for call in (node for tree in self._trees for node in ast.walk(tree)):
            if isinstance(call, ast.Call) and _called(call) == scope.name:
                yield from (one.value for one in call.keywords if one.arg == name)
                if name in names[: len(call.args)]:
                    yield call.args[names.index(name)]

    def _statement(self, node: ast.AST) -> ast.AST:
        while not isinstance(node, ast.stmt | ast.comprehension):
            node = self._above[id(node)]
        return node

    def _conditions(self, node: ast.AST, scope: ast.AST) -> Iterator[ast.AST]:
        while node is not scope:
            node = self._above[id(node)]
            if isinstance(node, ast.If):
                yield node.test


def _right(statement: ast.AST) -> Iterator[ast.AST]:
    if isinstance(statement, ast.For | ast.AsyncFor | ast.comprehension):
        yield statement.iter
    elif isinstance(statement, ast.With | ast.AsyncWith):
        yield from (item.context_expr for item in statement.items)
    elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) and statement.value:
        yield statement.value


def _grows(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _GROWS


def _is_rank(node: ast.AST) -> bool:
    name = (
        node.id if isinstance(node, ast.Name)
        else node.attr if isinstance(node, ast.Attribute)
        else node.value if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ""
    )  # fmt: skip
    return name.isidentifier() and _RANK.search(name) is not None


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _dataset(call: ast.Call) -> ast.expr | None:
    named = (keyword.value for keyword in call.keywords if keyword.arg == "dataset")
    return call.args[0] if call.args else next(named, None)
