"""``host/sync-in-step`` in source: lines of the training step that make the host wait for the device."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.datasets import is_lazy
from hotloop.audit.hit import hit
from hotloop.audit.module import Module, argument, chain
from hotloop.audit.regions import Region, of_function
from hotloop.audit.rules.host.loop_over_parameters import over_parameters
from hotloop.audit.tensors import is_tensor
from hotloop.audit.tree import Tree, uses_cuda
from hotloop.findings import Finding

ID = "host/sync-in-step"
_HOST_MADE = (
    "torch.rand",
    "torch.randint",
    "torch.randn",
    "torch.randperm",
    "torch.tensor",
    "torch.as_tensor",
)
_TO_HOST = ("cpu", "numpy", "tolist", "item")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where item(), cpu(), float(loss), synchronize() or a branch on a tensor runs at every step on
    CUDA.
    """
    for region in tree.regions:
        if uses_cuda(region.module):
            yield from _calls(region)
    for loop, step in tree.outer:
        if uses_cuda(loop.module):
            yield from _results(tree, loop, step)
    yield from _branches(tree)


def _results(tree: Tree, loop: Region, step: ast.Call) -> Iterator[Finding]:
    """What a loop does with the values of its step, a function elsewhere, and what it hands them to."""
    assigned = loop.module.parents.get(step)
    targets = assigned.targets if isinstance(assigned, ast.Assign) else []
    values = frozenset(
        node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)
    )
    yield from _calls(loop, values)
    for call in loop.calls:
        handed = [isinstance(value, ast.Name) and value.id in values for value in call.args]
        target = tree.method(loop.module, call) if any(handed) else None
        if target is None or not loop.every_step(call):
            continue
        names = [given.arg for given in target[1].args.args]
        names = names[1:] if isinstance(call.func, ast.Attribute) and names[:1] == ["self"] else names
        known = frozenset(name for name, is_value in zip(names, handed, strict=False) if is_value)
        yield from _calls(of_function(*target), known)


def _calls(region: Region, known: frozenset[str] | None = None) -> Iterator[Finding]:
    """Calls that wait, in a region; with ``known`` only those on these names."""
    found = [
        (call, words, under)
        for call in region.calls
        if (words := _waits(region, call))
        and (known is None or _root(call) in known)
        and (under := region.under(call)) is not None
        and not _by_parameter(region, call)
    ]
    if not found:
        return
    call, words, under = min(found, key=lambda one: len(one[2]))
    alike = [other for other, _, its in found if its == under and other is not call]
    count = f" ({1 + len(alike)} such calls)" if alike else ""
    where = f" where {' and '.join(under)}" if under else ""
    yield hit(
        ID,
        region.module,
        call,
        "low" if under else "medium",
        f"{words} runs at every step{where} and makes the host wait for the device{count}: the next step "
        "cannot be queued while this one runs.",
        "Keep the value on the device (loss.detach()), sum it there, and read it every N steps.",
        also=alike,
    )


def _root(call: ast.Call) -> str:
    """The name that a method is called on, or on a part of which."""
    node: ast.AST = call.func
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _by_parameter(region: Region, call: ast.Call) -> bool:
    """Whether a loop over parameters holds the call: ``host/loop-over-parameters`` speaks of it."""
    return any(
        isinstance(above, ast.For) and over_parameters(above) for above in region.module.ancestors(call)
    )


def _branches(tree: Tree) -> Iterator[Finding]:
    """Branches on tensors in the step itself, and in the functions it calls."""
    found: dict[tuple[str, int], Finding] = {}
    for region in tree.regions:
        if not uses_cuda(region.module):
            continue
        own = [n for n in ast.walk(region.root) if isinstance(n, ast.If) and region.every_step(n)]
        tests = [n for n in own if is_tensor(region.module, n.test, frozenset(_losses(region)))]
        places = [(region.module, tests)]
        for call in region.calls:
            for module, function in tree.targets(region.module, call) if region.every_step(call) else ():
                inside = [
                    n
                    for n in ast.walk(function)
                    if isinstance(n, ast.If) and not is_lazy(module, n, function)
                ]
                places.append((module, [n for n in inside if is_tensor(module, n.test, frozenset())]))
        for module, nodes in places:
            if nodes:
                found[module.name, nodes[0].lineno] = _branch(module, nodes)
    yield from found.values()


def _branch(module: Module, nodes: list[ast.If]) -> Finding:
    return hit(
        ID,
        module,
        nodes[0],
        "medium",
        "Python branches on a tensor at every step: the host waits until the device has computed it, and "
        "torch.compile breaks its graph here.",
        "Compute both sides and choose with torch.where, or use a form that is zero where it does not "
        "apply (relu).",
        also=nodes[1:],
    )


def _waits(region: Region, call: ast.Call) -> str:
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr in ("item", "cpu") and not call.args:
        owner = chain(func.value) or "(…)"
        if region.module.dotted(func.value) or _on_host(region, func.value):
            return ""
        simple = owner == "(…)" or isinstance(func.value, ast.Name | ast.Attribute)
        rest = "[...]" if isinstance(func.value, ast.Subscript) else "(...)"
        return f"{owner}{'' if simple else rest}.{func.attr}()"
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
        if isinstance(root, ast.Call):
            made = region.module.dotted(root.func) in _HOST_MADE and argument(root, "device") is None
            if made or getattr(root.func, "attr", "") in _TO_HOST:
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
