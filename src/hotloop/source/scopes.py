"""What every name of a file is bound to, and which reads mean it, as Python's scopes have it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hotloop.source.nodes import COMPREHENSIONS, DEFINITIONS, Comprehension, Function

ScopeNode = ast.Module | Function | ast.Lambda | ast.ClassDef | Comprehension

#: Fields of a definition that are evaluated where it stands.
_OUTER = ("decorator_list", "bases", "keywords", "returns")


@dataclass(frozen=True, eq=False)
class Scope:
    """A module, function, class or comprehension, with what it binds."""

    node: ScopeNode
    parent: Scope | None = None
    bindings: dict[str, list[Binding]] = field(default_factory=lambda: defaultdict(list), repr=False)
    #: Names that ``global`` or ``nonlocal`` declares, with the word.
    declared: dict[str, str] = field(default_factory=dict)

    @property
    def is_function(self) -> bool:
        """Whether it is a function, a lambda or a comprehension."""
        return not isinstance(self.node, ast.Module | ast.ClassDef)

    def lookup(self, name: str) -> Scope | None:
        """The scope that a name means here; None for what the file does not bind."""
        scope: Scope | None = self
        word = ""
        while scope is not None:
            word = word or scope.declared.get(name, "")
            skipped = scope is not self and isinstance(scope.node, ast.ClassDef)
            is_module = scope.parent is None
            if not skipped and (word != "global" or is_module) and name in scope.bindings:
                return scope
            scope = scope.parent
        return None


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that binds a name. ``node`` is the name, parameter, import or definition that does.

    ``value`` is the expression that it is bound to, where there is one; ``imported`` what an import names in
    full, with a dot for each level of a relative import.
    """

    name: str
    node: ast.AST
    scope: Scope = field(repr=False)
    value: ast.expr | None = None
    imported: str = ""


class Scopes:
    """The scopes of a file, made in one walk over it."""

    def __init__(self, tree: ast.Module, parents: Mapping[ast.AST, ast.AST]) -> None:
        self._parents = parents
        self.module = Scope(tree)
        #: The scope that each name, argument, definition and call is evaluated in.
        self._at: dict[ast.AST, Scope] = {tree: self.module}
        self._reads: dict[str, list[tuple[ast.Name, Scope]]] = defaultdict(list)
        stack: list[tuple[ast.AST, Scope]] = [(tree, self.module)]
        while stack:
            stack += list(self._visit(*stack.pop()))[::-1]

    def of(self, node: ast.AST) -> Scope:
        """The scope that a node is evaluated in."""
        at: ast.AST | None = node
        while at is not None and at not in self._at:
            at = self._parents.get(at)
        return self._at[at] if at is not None else self.module

    def bindings(self, node: ast.AST, name: str) -> list[Binding]:
        """What a name is bound to where a node stands; built-ins have none."""
        scope = self.of(node).lookup(name)
        return list(scope.bindings[name]) if scope is not None else []

    def references(self, binding: Binding) -> list[ast.Name]:
        """The reads that may mean what a binding gives its name, in the order of the file."""
        found = self._reads.get(binding.name, ())
        return [name for name, scope in found if scope.lookup(binding.name) is binding.scope]

    # -- the walk ----------------------------------------------------------------------------------------

    def _visit(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        self._at[node] = scope
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Store) or isinstance(self._parents.get(node), ast.AugAssign):
                self._reads[node.id].append((node, scope))
            if isinstance(node.ctx, ast.Store):
                self._bind(scope, node.id, node, value=bound_value(node, self._parents))
        elif isinstance(node, ast.Global | ast.Nonlocal):
            word = "global" if isinstance(node, ast.Global) else "nonlocal"
            scope.declared.update(dict.fromkeys(node.names, word))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self._bind(scope, node.name, node)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self._bind(scope, node.rest, node)
        if isinstance(node, DEFINITIONS):
            self._bind(scope, node.name, node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from self._function(node, scope)
        elif isinstance(node, ast.ClassDef):
            inner = Scope(node, scope)
            for name, value in ast.iter_fields(node):
                yield from ((one, scope if name in _OUTER else inner) for one in _nodes(value))
        elif isinstance(node, COMPREHENSIONS):
            yield from self._comprehension(node, scope)
        else:
            yield from ((one, scope) for one in ast.iter_child_nodes(node))

    def _function(self, node: Function | ast.Lambda, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        inner = Scope(node, scope)
        given = node.args
        named = [*given.posonlyargs, *given.args, given.vararg, *given.kwonlyargs, given.kwarg]
        self._at[given] = scope
        for one in named:
            if one is not None:
                self._at[one] = inner
                inner.bindings[one.arg].append(Binding(one.arg, one, inner))
        outer: list[ast.AST | None] = [
            *getattr(node, "decorator_list", ()),
            *given.defaults,
            *given.kw_defaults,
        ]
        outer += [one.annotation for one in named if one is not None]
        outer.append(getattr(node, "returns", None))
        yield from ((one, scope) for one in outer if one is not None)
        yield from ((one, inner) for one in _nodes(node.body))

    def _comprehension(self, node: Comprehension, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        inner = Scope(node, scope)
        yield node.generators[0].iter, scope
        for at, one in enumerate(node.generators):
            self._at[one] = inner
            yield one.target, inner
            if at:
                yield one.iter, inner
            yield from ((test, inner) for test in one.ifs)
        made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        yield from ((one, inner) for one in made)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.Import):
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                name = alias.asname or whole
            else:
                base = "." * node.level + (f"{node.module}." if node.module else "")
                name, whole = alias.asname or alias.name, base + alias.name
            self._bind(scope, name, alias, imported=whole)

    def _bind(
        self, scope: Scope, name: str, node: ast.AST, value: ast.expr | None = None, imported: str = ""
    ) -> None:
        if isinstance(self._parents.get(node), ast.NamedExpr):
            while isinstance(scope.node, COMPREHENSIONS) and scope.parent is not None:
                scope = scope.parent  # ``:=`` in a comprehension binds outside of it
        word = scope.declared.get(name)
        if word == "global":
            scope = self.module
        elif word == "nonlocal":
            above = scope.parent
            while above is not None and not (above.is_function and name in above.bindings):
                above = above.parent
            scope = above or scope
        scope.bindings[name].append(Binding(name, node, scope, value, imported))


def bound_value(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.expr | None:
    """The expression that a stored name or attribute stands for, where there is one of its own."""
    above = parents.get(node)
    if isinstance(above, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        return above.value
    if isinstance(above, ast.withitem):
        return above.context_expr
    if isinstance(above, ast.Tuple):
        outer = parents.get(above)
        values = (
            outer.value.elts if isinstance(outer, ast.Assign) and isinstance(outer.value, ast.Tuple) else []
        )
        if len(values) == len(above.elts) and not any(isinstance(one, ast.Starred) for one in values):
            return values[[one is node for one in above.elts].index(True)]
    return None


def _nodes(value: object) -> list[ast.AST]:
    if isinstance(value, list):
        return [one for one in value if isinstance(one, ast.AST)]
    return [value] if isinstance(value, ast.AST) else []
