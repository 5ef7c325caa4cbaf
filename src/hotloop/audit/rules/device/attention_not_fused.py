"""``device/attention-not-fused`` in source: attention is written out by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Function, Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "device/attention-not-fused"
_FUSED = (
    "scaled_dot_product_attention",
    "flash_attn",
    "xformers",
    "memory_efficient_attention",
    "flash",
    "normalize(",
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of softmax(q @ k.transpose) @ v in one function whose weights go nowhere else, in a file without
    SDPA.
    """
    for module in tree.modules:
        if any(word in module.source.text for word in _FUSED) or "softmax" not in module.source.text:
            continue
        for function in module.functions:
            softmax = _by_hand(module, function)
            if softmax is not None:
                yield hit(
                    ID,
                    module,
                    softmax,
                    "info",
                    "Attention is written out: the matrix of all weights (length x length for each head) "
                    "is written to "
                    "memory and read back for softmax, dropout and the product.",
                    "Use torch.nn.functional.scaled_dot_product_attention; a bias or mask goes into "
                    "attn_mask.",
                )


def _by_hand(module: Module, function: Function) -> ast.Call | None:
    """The softmax between two products, where only the second product reads the weights."""
    weights: str = ""
    softmax: ast.Call | None = None
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and isinstance(node.targets[0], ast.Name)
        ):
            call = node.value
            if chain(call.func).endswith("softmax") and module.function_of(call) is function:
                weights, softmax = node.targets[0].id, call
    if softmax is None or not _scores(function):
        return None
    uses = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id == weights and isinstance(n.ctx, ast.Load)
    ]
    after = [n for n in uses if n.lineno >= softmax.lineno and softmax not in module.ancestors(n)]
    products = [n for n in after if _in_product(module, n)]
    others = [n for n in after if n not in products and not _is_dropped(module, n, weights)]
    return softmax if len(products) == 1 and not others else None


def _scores(function: Function) -> bool:
    """Whether the function multiplies something by a transposed thing."""
    for node in ast.walk(function):
        right = None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            right = node.right
        elif (
            isinstance(node, ast.Call)
            and chain(node.func) in ("torch.matmul", "torch.bmm")
            and len(node.args) == 2
        ):
            right = node.args[1]
        if isinstance(right, ast.Call) and chain(right.func).endswith(".transpose"):
            return True
    return False


def _in_product(module: Module, node: ast.Name) -> bool:
    parent = module.parents.get(node)
    if isinstance(parent, ast.BinOp):
        return isinstance(parent.op, ast.MatMult) and parent.left is node
    return (
        isinstance(parent, ast.Call)
        and chain(parent.func) in ("torch.matmul", "torch.bmm")
        and parent.args[0] is node
    )


def _is_dropped(module: Module, node: ast.Name, weights: str) -> bool:
    """``attn = dropout(attn)``"""
    parent = module.parents.get(node)
    above = module.parents.get(parent) if parent is not None else None
    return (
        isinstance(parent, ast.Call)
        and "drop" in chain(parent.func)
        and isinstance(above, ast.Assign)
        and chain(above.targets[0]) == weights
    )
