"""``host/sync-in-step`` in source: lines of the training step that make the host wait for the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import chain
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree, uses_cuda
from hotloop.findings import Finding

ID = "host/sync-in-step"
_TO_HOST = ("cpu", "numpy", "tolist", "item")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where item(), float(loss), synchronize() or a printed loss runs at every step on a CUDA
    device.
    """
    for region in tree.regions:
        if not uses_cuda(region.module):
            continue
        found = [(call, words) for call in region.calls if (words := _waits(region, call))]
        found = [(call, words) for call, words in found if region.every_step(call)]
        if not found:
            continue
        call, words = found[0]
        count = f" ({len(found)} such calls)" if len(found) > 1 else ""
        yield hit(
            ID,
            region.module,
            call,
            "medium",
            f"{words} runs at every step and makes the host wait for the device{count}: the next step cannot "
            "be queued while this one runs.",
            "Keep the value on the device (loss.detach()), sum it there, and read it every N steps.",
            also=[other for other, _ in found[1:]],
        )


def _waits(region: Region, call: ast.Call) -> str:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in ("item", "cpu") and not call.args:
        owner = chain(func.value)
        if not owner or region.module.dotted(func.value) or _on_host(region, func.value):
            return ""
        simple = isinstance(func.value, ast.Name | ast.Attribute)
        return f"{owner}{'' if simple else '(...)'}.{func.attr}()"
    name = region.module.dotted(func)
    if name == "torch.cuda.synchronize":
        return "torch.cuda.synchronize()"
    if name == "float" and len(call.args) == 1 and isinstance(call.args[0], ast.Name):
        return f"float({call.args[0].id})" if call.args[0].id in _losses(region) else ""
    return ""


def _on_host(region: Region, node: ast.expr) -> bool:
    """Whether a value comes from a copy on the host (which waited itself), NumPy, or the loader's own
    batch.
    """
    root: ast.AST = node
    while isinstance(root, ast.Attribute | ast.Subscript | ast.Call):
        if isinstance(root, ast.Call) and getattr(root.func, "attr", "") in _TO_HOST:
            return True
        root = root.func if isinstance(root, ast.Call) else root.value
    if not isinstance(root, ast.Name):
        return False
    target = getattr(region.root, "target", None)
    batch = {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} if target is not None else set()
    values = [value for value in region.module.bindings(root) if value is not None]
    if root.id in batch and not values:
        return True
    return any(
        (isinstance(part, ast.Attribute) and part.attr in _TO_HOST)
        or region.module.dotted(part).startswith(("numpy.", "math.", "random."))
        for value in values
        for part in ast.walk(value)
        if isinstance(part, ast.Attribute | ast.Name)
    )


def _losses(region: Region) -> set[str]:
    owners = [c.func.value for c in region.backwards if isinstance(c.func, ast.Attribute)]
    return {owner.id for owner in owners if isinstance(owner, ast.Name)}
