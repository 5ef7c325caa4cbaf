"""``input/slow-sample`` in source: Python loops over the pixels of each sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.datasets import DatasetClass, is_lazy
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "input/slow-sample"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of nested loops over ranges, in the code of a sample, that read or write one element at a
    time.
    """
    for dataset in tree.datasets:
        loop = next(_pixel_loops(dataset), None)
        if loop is not None:
            yield hit(
                ID,
                dataset.module,
                loop,
                "medium",
                "A Python loop goes over the elements of an array for every sample: about 0.1 us to 1 us for "
                "each element, where NumPy takes 1 ns.",
                "Write it with array operations (slices, broadcasting, numpy.where).",
            )


def _pixel_loops(dataset: DatasetClass) -> Iterator[ast.For]:
    for function in dataset.sample_code():
        for node in ast.walk(function):
            if not isinstance(node, ast.For) or not _is_range(dataset, node):
                continue
            inner = (n for n in ast.walk(node) if isinstance(n, ast.For) and n is not node)
            if not is_lazy(dataset.module, node, function) and any(
                _is_range(dataset, n) and _indexes_both(node, n) for n in inner
            ):
                yield node


def _is_range(dataset: DatasetClass, node: ast.For) -> bool:
    call = node.iter
    if not isinstance(call, ast.Call) or dataset.module.dotted(call.func) != "range":
        return False
    counts = any(isinstance(n, ast.Name) and n.id == "len" for a in call.args for n in ast.walk(a))
    literal = all(isinstance(a, ast.Constant) for a in call.args)
    return isinstance(node.target, ast.Name) and not counts and not literal


def _indexes_both(outer: ast.For, inner: ast.For) -> bool:
    """Whether a subscript ``a[i, j]`` (or ``a[i][j]``) uses both loop variables plainly."""
    names = {outer.target.id, inner.target.id}  # type: ignore[attr-defined]
    for node in ast.walk(inner):
        if isinstance(node, ast.Subscript):
            inside = {part.id for part in ast.walk(node.slice) if isinstance(part, ast.Name)}
            if isinstance(node.value, ast.Subscript):
                inside |= {part.id for part in ast.walk(node.value.slice) if isinstance(part, ast.Name)}
            if names <= inside and isinstance(node.ctx, ast.Store):
                return not any(isinstance(part, ast.Slice) for part in ast.walk(node.slice))
    return False
