"""``host/loop-over-parameters``: Python visits every parameter at every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.datasets import is_lazy
from hotloop.audit.hits import Hit, Rule, at
from hotloop.audit.module import Module
from hotloop.audit.program import Program, uses_cuda
from hotloop.audit.tensors import is_tensor
from hotloop.source.nodes import chain, last_name, targets_of

_READS: Final = ("item", "tolist", "cpu", "numpy")
_IN_PLACE: Final = ("mul_", "add_", "lerp_", "copy_", "clamp_", "div_", "sub_", "addcmul_", "addcdiv_")
#: Functions that training itself is made of: visiting parameters there is not an extra.
_ONCE: Final = ("init", "build", "freeze", "load", "group", "save", "state", "reset")


def _loop_over_parameters(program: Program) -> Iterator[Hit]:
    """Loops over ``model.parameters()``, at every step, that read values or update in place.

    The step itself is looked at, and the functions it calls.
    """
    found: dict[tuple[str, int], Hit] = {}
    for region in program.regions:
        if not uses_cuda(region.module):
            continue
        module = region.module
        places = [(module, n) for n in module.nodes(ast.For, region.root) if region.every_step(n)]
        for where, function in program.called(region):
            if not any(word in function.name for word in _ONCE):
                loops = where.nodes(ast.For, function)
                places += [(where, n) for n in loops if not is_lazy(where, n, function)]
        for where, loop in places:
            hit = _hit(where, loop) if over_parameters(loop) else None
            if hit is not None:
                found[where.name, loop.lineno] = hit
    yield from found.values()


def over_parameters(loop: ast.For) -> bool:
    """``for p in model.parameters()``, also in zip or enumerate; ``for k, v in m.state_dict().items()``."""
    calls = [node for node in ast.walk(loop.iter) if isinstance(node, ast.Call)]
    return any(
        (isinstance(call.func, ast.Attribute) and call.func.attr in ("parameters", "named_parameters"))
        or chain(call.func).endswith((".state_dict.items", ".state_dict.values"))
        for call in calls
    )


def _hit(module: Module, loop: ast.For) -> Hit | None:
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    inside = [node for statement in loop.body for node in module.under(statement)]
    for node in inside:  # norm = p.grad.norm()
        if isinstance(node, ast.Assign) and names & {n.id for n in module.nodes(ast.Name, node.value)}:
            names |= {last_name(target) for target in targets_of(node)}
    read = next((node for node in inside if _reads(module, node, names)), None)
    if read is not None:
        return at(
            module,
            loop,
            "medium",
            "Every parameter is visited at every step, and one value of each is read on the host: it waits "
            "for the device once for each parameter.",
            "Ask once: torch.nn.utils.get_total_norm or clip_grad_norm_ gives one norm for all (not finite "
            "if any gradient is not); torch._foreach_norm(list) gives all norms in one launch.",
            also=[read],
        )
    updated = next((node for node in inside if _updates(node, names)), None)
    gates = (above for above in module.ancestors(loop) if isinstance(above, ast.If))
    if updated is None or any("%" in ast.unparse(gate.test) for gate in gates):
        return None
    return at(
        module,
        loop,
        "low",
        "Every parameter is updated by itself at every step: a kernel or two for each, launched one after "
        "the other.",
        "Use the list forms (torch._foreach_lerp_, _foreach_mul_, _foreach_add_, _foreach_clamp_max_): one "
        "launch for many tensors. For averages there is torch.optim.swa_utils.AveragedModel with "
        "get_ema_multi_avg_fn.",
        also=[updated],
    )


def _reads(module: Module, node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _READS and chain(node.func).partition(".")[0] in names
    if isinstance(node, ast.If):
        mentions = any(one.id in names for one in module.nodes(ast.Name, node.test))
        return mentions and is_tensor(module, node.test, frozenset())
    return False


def _updates(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Call):
        return last_name(node.func) in _IN_PLACE and chain(node.func).partition(".")[0] in names
    return isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in names


RULES: Final[dict[str, Rule]] = {"host/loop-over-parameters": _loop_over_parameters}
