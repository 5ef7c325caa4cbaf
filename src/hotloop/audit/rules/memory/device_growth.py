"""``memory/device-growth`` in source: losses are summed or kept with the graph that made them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import chain
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/device-growth"
_WITHOUT_GRAPH = ("item", "detach", "float", "reduce_tensor", "all_reduce", "reduce_mean")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a name that starts outside the loop takes in the very tensor that backward was called
    on.
    """
    for region in tree.regions:
        if not isinstance(region.root, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _kept(region)


def _kept(region: Region) -> Iterator[Finding]:
    losses = {_loss(call) for call in region.backwards} - {""}
    outputs = _outputs(region, losses)
    for node in ast.walk(region.root):
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            kept, into, how = node.value, chain(node.target), "+="
        elif isinstance(node, ast.Call) and chain(node.func).endswith(".append") and len(node.args) == 1:
            kept, into, how = node.args[0], chain(node.func).removesuffix(".append"), "append"
        else:
            continue
        if not isinstance(kept, ast.Name) or kept.id not in losses | outputs or into in losses:
            continue
        if _starts_inside(region, into) or _replaced(region, kept.id, node):
            continue
        if how == "append" and not _is_list(region, node):
            continue
        yield hit(
            ID,
            region.module,
            node,
            "high",
            f"`{into}` keeps {kept.id} with its graph ({how}): the graph's nodes of every step stay in "
            f"memory "
            "as long as it does.",
            f"Keep {kept.id}.detach() instead; call .item() on the sum when it is read.",
        )


def _outputs(region: Region, losses: set[str]) -> set[str]:
    """Names of what a model made in the region, where the loss is computed from that very name."""
    module = region.module
    models = {
        chain(call.func.value)
        for call in module.calls.get("parameters", ())
        if isinstance(call.func, ast.Attribute)
    }
    read = {
        part.id
        for node in ast.walk(region.root)
        if isinstance(node, ast.Assign) and any(chain(target) in losses for target in node.targets)
        for part in ast.walk(node.value)
        if isinstance(part, ast.Name)
    }
    made: dict[str, set[bool]] = {}
    for node in ast.walk(region.root):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            called = chain(node.value.func) if isinstance(node.value, ast.Call) else ""
            made.setdefault(node.targets[0].id, set()).add(called in models and called != "")
    return {name for name in read if made.get(name) == {True}}


def _loss(backward: ast.Call) -> str:
    """The name that backward was called on, through ``scaler.scale(loss)`` and
    ``accelerator.backward(loss)``.
    """
    owner = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    if isinstance(owner, ast.Call) and owner.args:
        owner = owner.args[0]
    elif backward.args and isinstance(backward.args[0], ast.Name):
        owner = backward.args[0]
    return owner.id if isinstance(owner, ast.Name) else ""


def _starts_inside(region: Region, name: str) -> bool:
    """Whether the region gives the name a new value, or it cannot be a sum kept across steps."""
    for node in ast.walk(region.root):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(chain(t) == name for target in targets for t in ast.walk(target)):
            return True
        if isinstance(node, ast.Call) and chain(node.func) in (
            f"{name}.backward",
            f"{name}.clear",
            f"{name}.pop",
        ):
            return True
    return not name


def _is_list(region: Region, append: ast.AST) -> bool:
    """Whether what is appended to is a list that the source makes."""
    owner = (
        append.func.value if isinstance(append, ast.Call) and isinstance(append.func, ast.Attribute) else None
    )
    made = region.module.values(owner) if owner is not None else []
    return bool(made) and all(
        isinstance(value, ast.List) or (isinstance(value, ast.Call) and chain(value.func) == "list")
        for value in made
    )


def _replaced(region: Region, name: str, use: ast.AST) -> bool:
    """Whether the name gets a value without a graph, by item() or detach(), anywhere in the region."""
    for node in ast.walk(region.root):
        if isinstance(node, ast.Assign) and any(chain(t) == name for t in node.targets):
            made = chain(node.value).rpartition(".")[2] if isinstance(node.value, ast.Call) else ""
            if made in _WITHOUT_GRAPH:
                return True
    return any(
        isinstance(above, ast.With) and any("no_grad" in chain(item.context_expr) for item in above.items)
        for above in region.module.ancestors(use)
    )
