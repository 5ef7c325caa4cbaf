"""Attention is written out as softmax of a matrix product."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import LineGroup, select
from hotloop.diagnose.source import function_text
from hotloop.findings import Finding
from hotloop.measure.steps import LineCost
from hotloop.units import share
from hotloop.written import tree_of

ID = "device/attention-not-fused"

Kind = Literal["", "scores", "weights"]

_PRODUCTS = frozenset(["matmul", "bmm", "baddbmm", "einsum"])
#: Of these the ones that give scores as they are; a matrix product does of what is transposed.
_OF_SCORES = frozenset(["bmm", "baddbmm", "einsum"])
_TRANSPOSED = re.compile(r"transpose\(|permute\(|swapaxes\(|\.m?T\b|\.t\(\)")
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
_FUSED = re.compile(r"scaled_dot_product_attention|flash_attn|xformers")


def check(evidence: Evidence) -> Iterable[Finding]:
    """A function of the model with softmax(q @ k^T) @ v that takes a visible part of forward."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or evidence.on_accelerator:
        return  # the host's time in a line says nothing about the device's
    by_function: dict[tuple[str, str], list[LineCost]] = {}
    for line in select(steps, lambda line: line.phase == "forward"):
        by_function.setdefault((line.place.file, line.place.function), []).append(line)
    for lines in by_function.values():
        group = LineGroup(lines=tuple(sorted(lines, key=lambda line: -line.seconds)))
        if group.seconds < limits.python_in_forward_ratio * steps.span_s or not _is_attention(
            evidence, group
        ):
            continue
        place = group.hottest.place
        yield cause(
            evidence,
            ID,
            message=f"Attention is written out in {group.function or 'the model'}(){at(place)}.",
            advice="Use torch.nn.functional.scaled_dot_product_attention: one kernel.",
            numbers=[f"{share(group.seconds / steps.span_s)} of the span in this function's forward"],
            where=place,
            severity="info",
            remedies=("fused-attention",),
            data={"effect": "numeric", "unpriced": True},
        )


def _is_attention(evidence: Evidence, group: LineGroup) -> bool:
    text = function_text(evidence, group.hottest.place)
    written_out = "softmax" in text.lower() and _multiplies_weights(text)
    return written_out and (not _FUSED.search(text) or _ran(group))


def _ran(group: LineGroup) -> bool:
    """Whether softmax was met and no fused call: of a function with a branch for each, this one is taken."""
    sources = [line.source.lower() for line in group.lines]
    return any("softmax" in text for text in sources) and not any(_FUSED.search(text) for text in sources)


@lru_cache(maxsize=256)
def _multiplies_weights(text: str) -> bool:
    """Whether the softmax of a product is a factor of another."""
    tree = tree_of(textwrap.dedent(text))
    known: dict[str, Kind] = {}
    statements = [node for node in ast.walk(tree or ast.Module([], [])) if isinstance(node, _STATEMENTS)]
    for statement in sorted(statements, key=lambda node: node.lineno):
        for node in ast.walk(statement):
            factors = list(_factors(node))
            if any(_kind(factor, known) == "weights" for factor in factors):
                return True
        if statement.value is None or isinstance(statement, ast.Expr | ast.Return):
            continue
        kind = _kind(statement.value, known)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name) and not (isinstance(statement, ast.AugAssign) and not kind):
                known[target.id] = kind
    return False


def _factors(node: ast.AST) -> Iterator[ast.expr]:
    """What a product multiplies: ``a @ b``, ``torch.bmm(a, b)``, ``a.matmul(b)``, an einsum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield from (node.left, node.right)
    elif isinstance(node, ast.Call) and _called(node) in _PRODUCTS:
        yield from node.args
        if isinstance(node.func, ast.Attribute) and len(node.args) == 1:
            yield node.func.value


def _kind(node: ast.expr, known: dict[str, Kind]) -> Kind:
    """Whether an expression is scores (a product with a transposed factor), their softmax, or neither."""
    if isinstance(node, ast.Name):
        return known.get(node.id, "")
    if list(_factors(node)):
        either_way = isinstance(node, ast.Call) and _called(node) in _OF_SCORES
        return "scores" if either_way or _TRANSPOSED.search(ast.unparse(node)) else ""
    if isinstance(node, ast.BinOp):
        return _kind(node.left, known) or _kind(node.right, known)
    if isinstance(node, ast.Attribute | ast.Subscript):
        return _kind(node.value, known)
    if not isinstance(node, ast.Call):
        return ""
    inner = [*node.args, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    kinds = {_kind(one, known) for one in inner}
    if "weights" in kinds:
        return "weights"
    called = ast.unparse(node.func).lower()
    softmax = "softmax" in called and "log" not in called and "gumbel" not in called
    return ("weights" if softmax else "scores") if "scores" in kinds else ""


def _called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]
