"""``numerics/no-zero-grad``: gradients are never reset; every step adds to all before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/no-zero-grad"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a file steps an optimizer that it made and mentions no reset of gradients."""
    for region in tree.regions:
        module = region.module
        if any(module.dotted(call.func).startswith("torch.optim.") for call in region.calls):
            continue
        owners = [step.func.value for step in region.steps if isinstance(step.func, ast.Attribute)]
        made_here = any(module.made_by(owner).startswith("torch.optim.") for owner in owners)
        text = module.source.text
        if made_here and "zero_grad" not in text and ".grad = " not in text and ".grad=" not in text:
            yield hit(
                ID,
                module,
                region.steps[0],
                "high",
                "Gradients are reset nowhere in this file: each step moves along the sum of all gradients "
                "so far.",
                "Call optimizer.zero_grad() before backward.",
            )
