"""Dataset classes and the code that makes one sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hotloop.audit.module import Function, Module, chain

_DATASETS: Final = frozenset(
    [
        "torch.utils.data.Dataset",
        "torch.utils.data.IterableDataset",
        "torchvision.datasets.VisionDataset",
        "torchvision.datasets.vision.VisionDataset",
        "torchvision.datasets.ImageFolder",
        "torchvision.datasets.DatasetFolder",
        "torch_geometric.data.Dataset",
    ]
)


@dataclass(frozen=True, kw_only=True)
class DatasetClass:
    """A class whose samples a DataLoader asks for. ``getitem`` is its ``__getitem__``, where it has one."""

    module: Module
    node: ast.ClassDef
    iterable: bool
    getitem: Function | None

    @property
    def name(self) -> str:
        """The class's own name."""
        return self.node.name

    def sample_code(self) -> Iterator[Function]:
        """``__getitem__`` and the methods and functions of the same file that it calls: one call deep."""
        if self.getitem is None:
            return
        seen = {self.getitem}
        yield self.getitem
        for node in ast.walk(self.getitem):
            if isinstance(node, ast.Call):
                called = self._own(node.func)
                if called is not None and called not in seen and not is_lazy(self.module, node, self.getitem):
                    seen.add(called)
                    yield called

    def sample_calls(self) -> Iterator[ast.Call]:
        """Calls that run for every sample: not behind a check for something already made."""
        for function in self.sample_code():
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and not is_lazy(self.module, node, function):
                    yield node

    def _own(self, func: ast.expr) -> Function | None:
        if isinstance(func, ast.Attribute) and chain(func.value) == "self":
            return self.module.method(self.node, func.attr)
        if isinstance(func, ast.Name):
            return next(
                (f for f in self.module.functions if f.name == func.id and f in self.module.tree.body), None
            )
        return None


def find(modules: list[Module]) -> list[DatasetClass]:
    """Every class of the tree that is a Dataset, by its bases, or by the bases of its bases."""
    known: dict[str, bool] = {}
    found: dict[ast.ClassDef, DatasetClass] = {}
    for _ in range(3):
        before = len(found)
        for module in modules:
            for node in module.classes:
                if node not in found and (kind := _kind(module, node, known)) is not None:
                    getitem = module.method(node, "__getitem__")
                    found[node] = DatasetClass(module=module, node=node, iterable=kind, getitem=getitem)
                    known[node.name] = kind
        if len(found) == before:
            break
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
        if (
            isinstance(above, ast.If | ast.IfExp)
            and below is not above.test
            and not _is_there(above.test, node)
        ):
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


def is_fixed(dataset: DatasetClass, node: ast.expr, depth: int = 8) -> bool:
    """Whether an expression is surely the same for every sample: literals, and attributes set in __init__
    only.
    """
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        stored = [
            part
            for part in ast.walk(dataset.node)
            if isinstance(part, ast.Attribute) and part.attr == node.attr and isinstance(part.ctx, ast.Store)
        ]
        functions = [dataset.module.function_of(part) for part in stored]
        return bool(stored) and all(f is not None and f.name == "__init__" for f in functions)
    if isinstance(node, ast.Call) and dataset.module.dotted(node.func) in (
        "os.path.join",
        "str",
        "pathlib.Path",
    ):
        return bool(depth) and all(is_fixed(dataset, part, depth - 1) for part in node.args)
    if isinstance(node, ast.BinOp) and depth:
        return all(is_fixed(dataset, side, depth - 1) for side in (node.left, node.right))
    return False
