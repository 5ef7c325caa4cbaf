"""Which expressions are surely tensors: results of torch functions, of their methods, what functions of the
file return of them, and what is handed to torch functions that take nothing else.
"""

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
#: They refuse anything but a tensor.
_TAKE_TENSORS: Final = ("exp", "isfinite", "isinf", "isnan", "log", "relu", "sigmoid", "sqrt", "tanh")
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
        return (
            node.id in known
            or (bool(values) and all(is_tensor(module, value, known, depth - 1) for value in values))
            or (len(values) == 1 and _is_taken(module, node))
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
        if isinstance(node.func, ast.Name):
            return _returns_tensor(module, node.func, known, depth - 1)
        method = node.func if isinstance(node.func, ast.Attribute) else None
        return (
            method is not None
            and method.attr in _METHODS
            and is_tensor(module, method.value, known, depth - 1)
        )
    return False


def _returns_tensor(module: Module, name: ast.Name, known: frozenset[str], depth: int) -> bool:
    """Whether every return of a function of the file is a tensor."""
    own = [f for f in module.functions if f.name == name.id and f in module.tree.body]
    if len(own) != 1 or module.bindings(name):
        return False
    returned = [node.value for node in ast.walk(own[0]) if isinstance(node, ast.Return)]
    return bool(returned) and all(is_tensor(module, value, known, depth) for value in returned)


def _is_taken(module: Module, name: ast.Name) -> bool:
    """Whether the function that binds the name hands it to a torch function that takes only tensors."""
    scope = module.function_of(name)
    for call in ast.walk(scope) if scope is not None else ():
        if not isinstance(call, ast.Call) or len(call.args) != 1 or module.function_of(call) is not scope:
            continue
        value = call.args[0].operand if isinstance(call.args[0], ast.UnaryOp) else call.args[0]
        if isinstance(value, ast.Name) and value.id == name.id:
            package, _, function = module.dotted(call.func).rpartition(".")
            if package == "torch" and function in _TAKE_TENSORS:
                return True
    return False
