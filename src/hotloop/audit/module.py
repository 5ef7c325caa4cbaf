"""One source file as rules see it: aliases of imports, names and what they are bound to, who contains
whom.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from hotloop.audit.source import Source
from hotloop.findings import Place

Function = ast.FunctionDef | ast.AsyncFunctionDef
Loop = ast.For | ast.AsyncFor | ast.While
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef

#: What ``constant`` answers where the value is not known.
UNKNOWN: Final = object()

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
#: Fields that hold no node worth a visit.
_DULL: Final = frozenset(["ctx", "op", "ops", "type_comment", "lineno", "returns", "annotation"])
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
#: Bindings of one name in one scope; None stands for a value that is not an expression of its own.
Bindings = dict[str, list["ast.expr | None"]]


class Module:
    """A parsed file and its index, made in one walk. Nodes are in source order."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tree = source.tree
        self.name = source.name
        self.dotted_name = source.dotted
        self.lines = source.text.splitlines()
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self.imports: dict[str, str] = {}
        self.calls: dict[str, list[ast.Call]] = defaultdict(list)
        self.functions: list[Function] = []
        self.classes: list[ast.ClassDef] = []
        self.assigns: list[ast.Assign] = []
        self.withs: list[ast.With | ast.AsyncWith] = []
        self.defined: set[str] = set()
        self._bindings: dict[Scope, Bindings] = defaultdict(lambda: defaultdict(list))
        self._attributes: dict[ast.ClassDef, Bindings] = defaultdict(lambda: defaultdict(list))
        self._walk()

    # -- the walk ----------------------------------------------------------------------------------------

    def _walk(self) -> None:
        parents, visit = self.parents, self._visit
        stack: list[tuple[ast.AST, Scope]] = [(self.tree, self.tree)]
        while stack:
            node, scope = stack.pop()
            kind = type(node)
            if kind in _VISITED:
                visit(node, kind, scope)
                if kind in _SCOPES:
                    scope = node  # type: ignore[assignment]
            children: list[ast.AST] = []
            for field in kind._fields:
                if field in _DULL:
                    continue
                value = getattr(node, field, None)
                if isinstance(value, list):
                    children += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    children.append(value)
            for child in reversed(children):
                parents[child] = node
                stack.append((child, scope))

    def _visit(self, node: Any, kind: type, scope: Scope) -> None:
        if kind is ast.Name:
            if not isinstance(node.ctx, ast.Load):
                self._bindings[scope][node.id].append(self._bound(node))
        elif kind is ast.Call:
            self.scopes[node] = scope
            self.calls[_last(node.func)].append(node)
        elif kind is ast.Attribute:
            if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
                self._bind_attribute(node)
        elif kind is ast.Assign:
            self.assigns.append(node)
            self.scopes[node] = scope
        elif kind is ast.With or kind is ast.AsyncWith:
            self.withs.append(node)
        elif kind is ast.arg:
            self._bindings[scope][node.arg].append(None)
        elif kind is ast.Import:
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                self.imports.setdefault(alias.asname or whole, whole)
        elif kind is ast.ImportFrom:
            base = self._package(node)
            for alias in node.names:
                self.imports.setdefault(alias.asname or alias.name, f"{base}.{alias.name}".lstrip("."))
        else:
            self.scopes[node] = scope
            if kind is not ast.Lambda:
                self.defined.add(node.name)
                (self.classes if kind is ast.ClassDef else self.functions).append(node)

    def _package(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.dotted_name.split(".")
        is_package = self.source.path.name == "__init__.py"
        keep = len(parts) - node.level + (1 if is_package else 0)
        return ".".join([*parts[: max(0, keep)], *([node.module] if node.module else [])])

    def _bound(self, node: ast.Name | ast.Attribute) -> ast.expr | None:
        """The expression a stored name stands for, where it is one."""
        parent = self.parents.get(node)
        if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
            return parent.value
        if isinstance(parent, ast.withitem):
            return parent.context_expr
        if isinstance(parent, ast.Tuple):
            outer = self.parents.get(parent)
            values = (
                outer.value.elts
                if isinstance(outer, ast.Assign) and isinstance(outer.value, ast.Tuple)
                else []
            )
            if len(values) == len(parent.elts):
                return values[parent.elts.index(node)]
        return None

    def _bind_attribute(self, node: ast.Attribute) -> None:
        owner = self.class_of(node)
        if owner is not None and isinstance(node.value, ast.Name) and node.value.id == "self":
            self._attributes[owner][node.attr].append(self._bound(node))

    # -- who contains whom -------------------------------------------------------------------------------

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """What contains ``node``, innermost first."""
        parents = self.parents
        above = parents.get(node)
        while above is not None:
            yield above
            above = parents.get(above)

    def function_of(self, node: ast.AST) -> Function | None:
        """The function that contains ``node``."""
        return next((a for a in self.ancestors(node) if isinstance(a, _FUNCTIONS)), None)

    def class_of(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that contains ``node``."""
        return next((a for a in self.ancestors(node) if isinstance(a, ast.ClassDef)), None)

    def statement_of(self, node: ast.AST) -> ast.stmt | None:
        """The statement that ``node`` is, or is part of."""
        if isinstance(node, ast.stmt):
            return node
        return next((a for a in self.ancestors(node) if isinstance(a, ast.stmt)), None)

    def method(self, owner: ast.ClassDef, name: str) -> Function | None:
        """A method defined in the class itself."""
        return next((f for f in owner.body if isinstance(f, _FUNCTIONS) and f.name == name), None)

    def place(self, node: ast.AST) -> Place:
        """Where ``node`` stands."""
        function = node if isinstance(node, _FUNCTIONS) else self.function_of(node)
        line = getattr(node, "lineno", 1)
        return Place(file=self.name, line=line, function=function.name if function else "")

    # -- names -------------------------------------------------------------------------------------------

    def dotted(self, node: ast.AST | None) -> str:
        """The imported (or built-in) thing an expression names, in full: ``torch.utils.data.DataLoader``.

        Empty for what starts at a local name, an attribute of a local, or anything else.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.imports.get(node.id)
        if root is None:
            if parts or self._is_bound(node, to_module=True):
                return ""
            return node.id
        if self._is_bound(node, to_module=False):
            return ""
        whole = ".".join([root, *reversed(parts)])
        if whole.startswith("torch."):
            for prefix, plain in _CANONICAL.items():
                if whole.startswith(prefix):
                    return plain + whole.removeprefix(prefix)
        return whole

    def scope_of(self, node: ast.AST) -> Scope:
        """The innermost scope that ``node`` is evaluated in."""
        return next((a for a in self.ancestors(node) if isinstance(a, _SCOPES)), self.tree)

    def _is_bound(self, name: ast.Name, *, to_module: bool) -> bool:
        return any(
            name.id in self._bindings[scope] for scope in self._visible(name) if scope in self._bindings
        ) or (to_module and (name.id in self._bindings.get(self.tree, {}) or name.id in self.defined))

    def _visible(self, node: ast.AST) -> Iterator[Scope]:
        """The function scopes a name is looked up in, innermost first, without the module."""
        innermost = True
        for above in self.ancestors(node):
            if isinstance(above, _SCOPES):
                if innermost or not isinstance(above, ast.ClassDef):
                    yield above
                innermost = False

    def bindings(self, name: ast.Name) -> list[ast.expr | None]:
        """Everything the name is bound to, in the innermost scope that binds it."""
        for scope in self._visible(name):
            found = self._bindings.get(scope, {}).get(name.id)
            if found:
                return found
        return self._bindings.get(self.tree, {}).get(name.id, [])

    def attribute_bindings(self, owner: ast.ClassDef, name: str) -> list[ast.expr | None]:
        """Everything ``self.NAME`` is bound to in the methods of a class."""
        return self._attributes.get(owner, {}).get(name, [])

    def values(self, node: ast.AST) -> list[ast.expr | None]:
        """What a name or ``self.name`` may be bound to; the expression itself for anything else."""
        if isinstance(node, ast.Name):
            return self.bindings(node)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = self.class_of(node)
            return self.attribute_bindings(owner, node.attr) if owner else []
        return [node] if isinstance(node, ast.expr) else []

    def value(self, node: ast.AST) -> ast.expr | None:
        """The one expression behind a name, where there is exactly one."""
        found = self.values(node)
        return found[0] if len(found) == 1 else None

    def constant(self, node: ast.AST | None, depth: int = 3) -> Any:
        """The literal value of an expression, through names bound once; ``UNKNOWN`` where there is none."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.constant(node.operand, depth)
            return -inner if isinstance(inner, int | float) else UNKNOWN
        if depth and isinstance(node, ast.Name | ast.Attribute):
            value = self.value(node)
            if value is not None:
                return self.constant(value, depth - 1)
        return UNKNOWN

    def made_by(self, node: ast.AST, depth: int = 2) -> str:
        """Dotted name of the call that made what ``node`` stands for, where all its bindings agree."""
        if isinstance(node, ast.Call):
            return self.dotted(node.func)
        found = self.values(node) if isinstance(node, ast.Name | ast.Attribute) else []
        names = {self._maker(value, depth) for value in found if not _is_none(value)}
        return names.pop() if len(names) == 1 else ""

    def _maker(self, value: ast.expr | None, depth: int) -> str:
        if isinstance(value, ast.Call):
            name = self.dotted(value.func)
            if not name and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cuda"):
                return self._maker(value.func.value, depth)
            return name
        if isinstance(value, ast.Name | ast.Attribute) and depth:
            return self.made_by(value, depth - 1)
        return ""

    def calls_to(self, *dotted: str) -> Iterator[ast.Call]:
        """Calls of imported things by their full names."""
        for whole in dotted:
            last = whole.rpartition(".")[2]
            candidates = [last, *(alias for alias, real in self.imports.items() if real == whole)]
            for name in dict.fromkeys(candidates):
                yield from (call for call in self.calls.get(name, ()) if self.dotted(call.func) == whole)


_VISITED: Final = frozenset(
    [
        ast.Name,
        ast.Call,
        ast.Attribute,
        ast.Assign,
        ast.With,
        ast.AsyncWith,
        ast.arg,
        ast.Import,
        ast.ImportFrom,
        ast.FunctionDef,
        ast.AsyncFunctionDef,
        ast.Lambda,
        ast.ClassDef,
    ]
)


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def chain(node: ast.AST | None) -> str:
    """An attribute chain as written, ``self.optimizer``; calls and subscripts in it are left out."""
    parts: list[str] = []
    while node is not None:
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Name):
            parts.append(node.id)
            break
        else:
            break
    return ".".join(reversed(parts))


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """An argument of a call by keyword or position, where it is given plainly."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and len(call.args) > position:
        given = call.args[: position + 1]
        if not any(isinstance(a, ast.Starred) for a in given):
            return given[position]
    return None


def is_starred(call: ast.Call) -> bool:
    """Whether some arguments cannot be seen (``*args``, ``**kwargs``)."""
    return any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords)
