"""Which expressions are surely tensors: results of torch functions, of their methods, what functions of the
file return of them, and what is handed to torch functions that take nothing else.
"""

from __future__ import annotations

import ast
from typing import Final

from hotloop.audit.module import Module
from hotloop.source.values import values

_METHODS: Final = frozenset([
    "abs", "all", "any", "clamp", "detach", "exp", "isfinite", "isinf", "isnan", "log", "max", "mean",
    "min", "norm", "sqrt", "std", "sum", "var",
])  # fmt: skip
_FUNCTIONS: Final = _METHODS | {
    "cat", "relu", "sigmoid", "stack", "tanh", "where", "zeros", "ones", "zeros_like", "ones_like", "softmax"
}  # fmt: skip
#: They refuse anything but a tensor.
_TAKE_TENSORS: Final = ("exp", "isfinite", "isinf", "isnan", "log", "relu", "sigmoid", "sqrt", "tanh")


def is_tensor(module: Module, node: ast.AST | None, known: frozenset[str], depth: int = 8) -> bool:
    """Whether an expression is a tensor for sure; ``known`` are names that are (the loss)."""
    if node is None or not depth:
        return False

    def tensor(one: ast.AST | None) -> bool:
        return is_tensor(module, one, known, depth - 1)

    if isinstance(node, ast.Name):
        bound = values(module, node)
        if node.id in known or (bound and all(map(tensor, bound))):
            return True
        return len(bound) == 1 and _is_taken(module, node)
    if isinstance(node, ast.Compare):
        ordered = all(isinstance(op, ast.Lt | ast.Gt | ast.LtE | ast.GtE) for op in node.ops)
        return ordered and any(map(tensor, (node.left, *node.comparators)))
    if isinstance(node, ast.BinOp):
        return tensor(node.left) or tensor(node.right)
    if isinstance(node, ast.UnaryOp):
        return tensor(node.operand)
    if isinstance(node, ast.BoolOp):
        return tensor(node.values[0])
    if not isinstance(node, ast.Call):
        return False
    package, _, name = module.qualified(node.func).rpartition(".")
    if package == "torch.nn.functional" or (package == "torch" and name in _FUNCTIONS):
        return True
    if isinstance(node.func, ast.Name):
        own = module.own(node.func.id)
        returned = [one.value for one in module.nodes(ast.Return, own)] if own is not None else []
        return bool(returned) and all(map(tensor, returned))
    return isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS and tensor(node.func.value)


def _is_taken(module: Module, name: ast.Name) -> bool:
    """Whether the function that binds the name hands it to a torch function that takes only tensors."""
    scope = module.function_of(name)
    for call in module.nodes(ast.Call, scope) if scope is not None else ():
        if len(call.args) == 1 and module.function_of(call) is scope:
            given = call.args[0].operand if isinstance(call.args[0], ast.UnaryOp) else call.args[0]
            package, _, function = module.qualified(call.func).rpartition(".")
            refuses = package == "torch" and function in _TAKE_TENSORS
            if refuses and isinstance(given, ast.Name) and given.id == name.id:
                return True
    return False
