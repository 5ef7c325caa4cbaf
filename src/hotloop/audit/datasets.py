"""Dataset classes and the code that makes one sample."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hotloop.audit.module import Module
from hotloop.source.nodes import Function, chain, is_of_self, is_self
from hotloop.source.values import method

_DATASETS: Final = frozenset([
    "torch.utils.data.Dataset", "torch.utils.data.IterableDataset", "torch_geometric.data.Dataset",
])  # fmt: skip
#: What gives the same for every sample where its arguments do.
_JOINS: Final = ("os.path.join", "str", "pathlib.Path")


@dataclass(frozen=True, kw_only=True)
class DatasetClass:
    """A class whose samples a DataLoader asks for. ``getitem`` is its ``__getitem__``, where it has one."""

    module: Module
    node: ast.ClassDef
    iterable: bool

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.node.name

    @cached_property
    def getitem(self) -> Function | None:
        """Its ``__getitem__``."""
        return method(self.node, "__getitem__")

    @cached_property
    def sample_code(self) -> list[Function]:
        """``__getitem__`` and the methods and functions of the same file that it calls: one call deep."""
        if self.getitem is None:
            return []
        calls = self.module.nodes(ast.Call, self.getitem)
        called = [self._own(call.func) for call in calls if not is_lazy(self.module, call, self.getitem)]
        return list(dict.fromkeys([self.getitem, *(one for one in called if one is not None)]))

    @cached_property
    def sample_calls(self) -> list[ast.Call]:
        """Calls that run for every sample: not behind a check for something already made."""
        return [
            call
            for function in self.sample_code
            for call in self.module.nodes(ast.Call, function)
            if not is_lazy(self.module, call, function)
        ]

    def is_fixed(self, node: ast.expr, depth: int = 8) -> bool:
        """Whether an expression is surely the same for every sample: literals, and attributes set in
        __init__ only.
        """
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Attribute) and is_of_self(node):
            named = [one for one in self.module.nodes(ast.Attribute, self.node) if chain(one) == chain(node)]
            functions = [self.module.function_of(one) for one in named if not isinstance(one.ctx, ast.Load)]
            return bool(functions) and all(f is not None and f.name == "__init__" for f in functions)
        if isinstance(node, ast.Call) and self.module.dotted(node.func) in _JOINS:
            return bool(depth) and all(self.is_fixed(part, depth - 1) for part in node.args)
        sides = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
        return bool(depth) and bool(sides) and all(self.is_fixed(side, depth - 1) for side in sides)

    def _own(self, func: ast.expr) -> Function | None:
        if isinstance(func, ast.Attribute) and is_self(func.value):
            return method(self.node, func.attr)
        return self.module.own(func.id) if isinstance(func, ast.Name) else None


def find(modules: list[Module]) -> list[DatasetClass]:
    """Every class of the tree that is a Dataset, by its bases, or by the bases of its bases."""
    known: dict[str, bool] = {}
    found: dict[ast.ClassDef, DatasetClass] = {}
    for _ in range(3):
        for module in modules:
            for node in module.classes:
                kind = _kind(module, node, known) if node not in found else None
                if kind is not None:
                    found[node] = DatasetClass(module=module, node=node, iterable=kind)
                    known[node.name] = kind
    return list(found.values())


def _kind(module: Module, node: ast.ClassDef, known: dict[str, bool]) -> bool | None:
    for base in node.bases:
        name = module.dotted(base)
        if name in _DATASETS or name.startswith("torchvision.datasets."):
            return name.endswith("IterableDataset")
        last = chain(base).rpartition(".")[2]
        if last in known and last != node.name:
            return known[last]
    return None


def is_lazy(module: Module, node: ast.AST, function: ast.AST) -> bool:
    """Whether ``node`` runs only where a condition holds, or in an exception handler."""
    below = node
    for above in module.ancestors(node):
        if above is function:
            return False
        branch = isinstance(above, ast.If | ast.IfExp) and below is not above.test
        if branch and not _is_there(above.test, node):  # type: ignore[attr-defined]
            return True
        if isinstance(above, ast.ExceptHandler | ast.Lambda | ast.FunctionDef):
            return True
        below = above
    return False


def _is_there(test: ast.expr, node: ast.AST) -> bool:
    """``if self.scaler is not None`` around a use of ``self.scaler``: it runs for every sample."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.ops[0], ast.IsNot)
        and any(chain(part) == chain(test.left) for part in ast.walk(node) if isinstance(part, ast.Attribute))
    )
