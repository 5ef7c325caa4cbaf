"""Which expressions are surely tensors: results of torch functions, and methods of such results."""

from __future__ import annotations

import ast
from typing import Final

from hotloop.audit.module import Module

_FUNCTIONS: Final = frozenset(
    [
        "abs",
        "all",
        "any",
        "cat",
        "clamp",
        "exp",
        "isfinite",
        "isinf",
        "isnan",
        "log",
        "max",
        "mean",
        "min",
        "norm",
        "relu",
        "sigmoid",
        "sqrt",
        "stack",
        "sum",
        "tanh",
        "where",
        "zeros",
        "ones",
        "zeros_like",
        "ones_like",
        "softmax",
    ]
)
_METHODS: Final = frozenset(
    [
        "abs",
        "all",
        "any",
        "clamp",
        "detach",
        "exp",
        "isfinite",
        "isinf",
        "isnan",
        "log",
        "max",
        "mean",
        "min",
        "norm",
        "sqrt",
        "std",
        "sum",
        "var",
    ]
)


def is_tensor(module: Module, node: ast.AST | None, known: frozenset[str], depth: int = 8) -> bool:
    """Whether an expression is a tensor for sure; ``known`` are names that are (the loss)."""
    if node is None or not depth:
        return False
    if isinstance(node, ast.Name):
        values = module.bindings(node)
        return node.id in known or (
            bool(values) and all(is_tensor(module, value, known, depth - 1) for value in values)
        )
    if isinstance(node, ast.Compare):
        plain = all(isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for op in node.ops)
        return plain and any(is_tensor(module, n, known, depth - 1) for n in (node.left, *node.comparators))
    if isinstance(node, ast.BinOp):
        return any(is_tensor(module, side, known, depth - 1) for side in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return is_tensor(module, node.operand, known, depth - 1)
    if isinstance(node, ast.BoolOp):
        return is_tensor(module, node.values[0], known, depth - 1)
    if isinstance(node, ast.Call):
        package, _, name = module.dotted(node.func).rpartition(".")
        if package == "torch.nn.functional" or (package == "torch" and name in _FUNCTIONS):
            return True
        method = node.func if isinstance(node.func, ast.Attribute) else None
        return (
            method is not None
            and method.attr in _METHODS
            and is_tensor(module, method.value, known, depth - 1)
        )
    return False
