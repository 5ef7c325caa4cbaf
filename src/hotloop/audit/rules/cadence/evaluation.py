"""``cadence/evaluation`` in source: the model is evaluated at every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.module import chain
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "cadence/evaluation"
_NAME = re.compile(
    r"^(evaluate|validate|run_evaluation|run_validation|evaluate_model|validate_epoch|test_model)$"
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a function of the tree that loops over batches in eval mode is called at every step, or
    every N up to 20.
    """
    return in_steps(
        ID,
        tree,
        lambda region, call: _evaluates(tree, region, call),
        "high",
        "{}() evaluates over a whole loader {when}.",
        "Evaluate every N steps, N such that it takes under 5 % of the time.",
        most=20,
    )


def _evaluates(tree: Tree, region: Region, call: ast.Call) -> bool:
    if not _NAME.match(chain(call.func).rpartition(".")[2]):
        return False
    target = tree.target(region.module, call)
    if target is None:
        return False
    nodes = list(ast.walk(target[1]))
    evaluates = any(isinstance(n, ast.Call) and chain(n.func).endswith(".eval") for n in nodes)
    return evaluates and any(isinstance(n, ast.For) for n in nodes)
