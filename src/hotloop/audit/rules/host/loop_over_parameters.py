"""``host/loop-over-parameters``: Python visits every parameter at every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import is_lazy
from hotloop.audit.hit import hit
from hotloop.audit.module import Module, chain
from hotloop.audit.tensors import is_tensor
from hotloop.audit.tree import Tree, uses_cuda
from hotloop.findings import Finding

ID = "host/loop-over-parameters"
_PARAMETERS: Final = ("parameters", "named_parameters")
_READS: Final = ("item", "tolist", "cpu", "numpy")
_IN_PLACE: Final = ("mul_", "add_", "lerp_", "copy_", "clamp_", "div_", "sub_", "addcmul_", "addcdiv_")
#: Exponential moving averages of a model, and the methods that renew them.
_AVERAGE: Final = re.compile(r"(^|[._])(ema|\w+_ema|moving_?average)\b|EMA|MovingAverage")
_UPDATES: Final = ("update", "_update", "step", "update_parameters", "__call__")
#: Functions that training itself is made of: visiting parameters there is not an extra.
_ONCE: Final = ("init", "build", "freeze", "load", "group", "save", "state", "reset")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of loops over ``model.parameters()``, at every step, that read values or update in place.

    The step itself is looked at, and the functions it calls.
    """
    found: dict[tuple[str, int], Finding] = {}
    for region in tree.regions:
        if not uses_cuda(region.module):
            continue
        own = (n for n in ast.walk(region.root) if isinstance(n, ast.For) and region.every_step(n))
        places: list[tuple[Module, ast.AST]] = [(region.module, node) for node in own]
        for call in region.calls:
            for module, function in tree.targets(region.module, call) if region.every_step(call) else ():
                if not any(word in function.name for word in _ONCE):
                    places += [(module, n) for n in ast.walk(function) if not is_lazy(module, n, function)]
        if any(_AVERAGE.search(chain(call.func)) for call in region.calls_named("update", "step")):
            places += _averaging(tree)
        for module, node in places:
            if isinstance(node, ast.For) and over_parameters(node):
                finding = _finding(module, node)
                if finding is not None:
                    found[module.name, node.lineno] = finding
    yield from found.values()


def _averaging(tree: Tree) -> Iterator[tuple[Module, ast.AST]]:
    """What the averaging classes of the tree do at each update."""
    for module in tree.modules:
        for owner in module.classes:
            methods = (module.method(owner, name) for name in _UPDATES) if _AVERAGE.search(owner.name) else ()
            for method in filter(None, methods):
                yield from ((module, node) for node in ast.walk(method))


def over_parameters(loop: ast.For) -> bool:
    """``for p in model.parameters()``, also in zip or enumerate; ``for k, v in m.state_dict().items()``."""
    calls = [n for n in ast.walk(loop.iter) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return any(
        call.func.attr in _PARAMETERS
        or chain(call.func).endswith((".state_dict.items", ".state_dict.values"))
        for call in calls
        if isinstance(call.func, ast.Attribute)
    )


def _finding(module: Module, loop: ast.For) -> Finding | None:
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    for node in _inside(loop):  # norm = p.grad.norm()
        if isinstance(node, ast.Assign) and names & {
            n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)
        }:
            names |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    read = next((n for n in _inside(loop) if _reads(module, n, names)), None)
    if read is not None:
        return hit(
            ID,
            module,
            loop,
            "medium",
            "Every parameter is visited at every step, and one value of each is read on the host: it waits "
            "for the device once for each parameter.",
            "Ask once: torch.nn.utils.get_total_norm or clip_grad_norm_ gives one norm for all (not finite "
            "if any gradient is not); torch._foreach_norm(list) gives all norms in one launch.",
            also=[read],
        )
    updated = next((n for n in _inside(loop) if _updates(n, names) and not _seldom(module, loop)), None)
    if updated is not None:
        return hit(
            ID,
            module,
            loop,
            "low",
            "Every parameter is updated by itself at every step: a kernel or two for each, launched one "
            "after the other.",
            "Use the list forms (torch._foreach_lerp_, _foreach_mul_, _foreach_add_, _foreach_clamp_max_): "
            "one launch for many tensors. For averages there is torch.optim.swa_utils.AveragedModel with "
            "get_ema_multi_avg_fn. After a run that shows its time, hotloop fix writes the list forms.",
            also=[updated],
        )
    return None


def _inside(loop: ast.For) -> Iterator[ast.AST]:
    for statement in loop.body:
        yield from ast.walk(statement)


def _reads(module: Module, node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READS:
        return chain(node.func).partition(".")[0] in names
    if isinstance(node, ast.If):
        mentions = any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node.test))
        return mentions and is_tensor(module, node.test, frozenset())
    return False


def _seldom(module: Module, loop: ast.For) -> bool:
    """Whether a condition with a remainder stands around the loop: not at every step."""
    return any(isinstance(a, ast.If) and "%" in ast.unparse(a.test) for a in module.ancestors(loop))


def _updates(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.AugAssign):
        return isinstance(node.target, ast.Name) and node.target.id in names
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _IN_PLACE
        and chain(node.func).partition(".")[0] in names
    )
