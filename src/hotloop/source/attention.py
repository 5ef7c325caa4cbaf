"""Attention that is written out: softmax of a product of queries and keys, and a product with the values."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

from hotloop.source.code import Code
from hotloop.source.nodes import Function, last_name, targets_of

_SOFTMAX: Final = re.compile(r"(?!log_|gumbel_)\w*softmax$", re.IGNORECASE)
_PRODUCTS: Final = ("matmul", "bmm", "baddbmm", "einsum")
_TRANSPOSED: Final = ("transpose", "permute", "t", "T", "mT")


def written_out(code: Code, function: Function) -> ast.Call | None:
    """The softmax between a product that makes scores and one that takes its weights, where nothing else
    reads them.
    """
    products = [node for node in code.nodes((ast.BinOp, ast.Call), function) if _is_product(node)]
    for call in code.nodes(ast.Call, function):
        if _SOFTMAX.match(last_name(call.func)):
            around = [one for one in products if code.holds(one, call)]
            before = [one for one in products if one not in around and code.begin(one) < code.end(call)]
            after = [one for one in products if code.begin(one) > code.end(call)]
            scored = any(_makes_scores(code, one) for one in before)
            if scored and (around or after) and not _is_read_elsewhere(code, function, call, products):
                return call
    return None


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.MatMult)
    return isinstance(node, ast.Call) and last_name(node.func) in _PRODUCTS


def _makes_scores(code: Code, product: ast.AST) -> bool:
    """Whether a product has a transposed factor, or takes its factors as they are."""
    if isinstance(product, ast.Call) and last_name(product.func) != "matmul":
        return True
    return any(last_name(node) in _TRANSPOSED for node in code.nodes(ast.Attribute, product))


def _is_read_elsewhere(code: Code, function: Function, call: ast.Call, products: Sequence[ast.AST]) -> bool:
    """Whether the weights are read by more than products and ``attn = dropout(attn)``."""
    made = code.statement_of(call)
    names = {last_name(one) for one in targets_of(made)} if made is not None else set()
    for node in code.nodes(ast.Name, function):
        if node.id in names and isinstance(node.ctx, ast.Load) and code.begin(node) > code.end(call):
            above = code.statement_of(node)
            again = {last_name(one) for one in targets_of(above)} if above is not None else set()
            if again != names and not any(code.holds(one, node) for one in products):
                return True
    return False
