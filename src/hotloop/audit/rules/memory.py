"""Memory that a program holds for nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.module import Module
from hotloop.audit.patterns import Hit, Rule, at, each_region, every_step, gives
from hotloop.audit.program import Program
from hotloop.audit.regions import Region
from hotloop.source.caches import unbounded_caches
from hotloop.source.nodes import FUNCTIONS, Function, chain, decorators, last_name
from hotloop.source.values import values

_WITHOUT_GRAPH: Final = ("item", "detach", "float", "reduce_tensor", "all_reduce", "reduce_mean")
_OFF: Final = re.compile(r"no_grad|inference_mode|set_grad_enabled|requires_grad")
_NEEDS_GRAD: Final = (
    "backward", "grad", "requires_grad_", "enable_grad", "jacobian", "autograd", "manual_backward",
)  # fmt: skip


# What sums and lists keep of each step


def _device_growth(program: Program) -> Iterator[Hit]:
    """A name that starts outside the loop takes in the very tensor that backward was called on."""
    for region in program.regions:
        if isinstance(region.root, FUNCTIONS):
            continue
        losses = {_loss(call) for call in region.backwards} - {""}
        for node, tensor, into, how in _taken_in(region):
            if tensor not in losses or into in losses or _starts_inside(region, into):
                continue
            if not _replaced(region, tensor, node) and (how == "+=" or _is_list(region, node)):
                yield at(
                    region.module,
                    node,
                    "high",
                    f"`{into}` keeps {tensor} with its graph ({how}): the graph's nodes of every step stay "
                    "in memory as long as it does.",
                    f"Keep {tensor}.detach() instead; call .item() on the sum when it is read.",
                )


def _taken_in(region: Region) -> Iterator[tuple[ast.AST, str, str, str]]:
    """``into += name`` and ``into.append(name)`` with the name, what takes it in, and how."""
    for node in region.module.nodes(ast.AugAssign, region.root):
        if isinstance(node.op, ast.Add) and isinstance(node.value, ast.Name):
            yield node, node.value.id, chain(node.target), "+="
    for call in region.calls_named("append"):
        if len(call.args) == 1 and isinstance(call.args[0], ast.Name):
            yield call, call.args[0].id, chain(call.func).removesuffix(".append"), "append"


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
    """Whether the region gives the name a new value, or it cannot be a sum over steps."""
    assigns = region.module.nodes(ast.Assign, region.root)
    bound = any(chain(part) == name for node in assigns for t in node.targets for part in ast.walk(t))
    ends = {f"{name}.backward", f"{name}.clear", f"{name}.pop"}
    return not name or bound or any(chain(call.func) in ends for call in region.calls)


def _is_list(region: Region, append: ast.AST) -> bool:
    """Whether what is appended to is a list that the source makes."""
    func = append.func if isinstance(append, ast.Call) else None
    made = values(region.module, func.value) if isinstance(func, ast.Attribute) else []
    return bool(made) and all(
        isinstance(one, ast.List) or (isinstance(one, ast.Call) and chain(one.func) == "list") for one in made
    )


def _replaced(region: Region, name: str, use: ast.AST) -> bool:
    """Whether the name gets a value without a graph, by item() or detach(), anywhere in the region."""
    for node in region.module.nodes(ast.Assign, region.root):
        made = last_name(node.value.func) if isinstance(node.value, ast.Call) else ""
        if made in _WITHOUT_GRAPH and any(chain(target) == name for target in node.targets):
            return True
    return any(_turns_off(above) for above in region.module.ancestors(use))


# Evaluation with gradients


def _evaluation_with_grad(program: Program) -> Iterator[Hit]:
    """A function that calls model.eval(), loops over batches, and nowhere turns gradients off."""
    for module in program.modules:
        for function in module.functions if module.calls("eval") else ():
            call = _forward(module, function)
            if call is None or _without_grad(module, function):
                continue
            callers = program.callers(function)
            if not any(_turns_off(above) for where, one in callers for above in where.ancestors(one)):
                yield at(
                    module,
                    call,
                    "medium",
                    f"{function.name}() evaluates {chain(call.func)} with gradients on: every forward pass "
                    "keeps its activations until its outputs are gone.",
                )


def _forward(module: Module, function: Function) -> ast.Call | None:
    """A call, in a loop, of the very thing that ``eval()`` was called on."""
    calls = module.nodes(ast.Call, function)
    if any(chain(call.func).rpartition(".")[2] in (*_NEEDS_GRAD, "train", "step") for call in calls):
        return None
    evals = [c.func.value for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "eval"]
    models = {chain(owner) for owner in evals if isinstance(owner, ast.Name | ast.Attribute)}
    for call in calls:
        is_model = chain(call.func) in models and isinstance(call.func, ast.Name | ast.Attribute)
        in_loop = module.above(call, ast.For) is not None and module.function_of(call) is function
        if is_model and in_loop and call.args:
            return call
    return None


def _without_grad(module: Module, function: Function) -> bool:
    """Whether gradients, or those of parameters, are switched off anywhere in the function or around it."""
    named = (chain(node) for node in module.nodes((ast.Attribute, ast.Name), function))
    return any(map(_OFF.search, named)) or any(map(_turns_off, module.ancestors(function)))


def _turns_off(node: ast.AST) -> bool:
    """Whether a ``with`` or a decorator turns gradients off for what it contains."""
    if isinstance(node, ast.With | ast.AsyncWith):
        return any(_OFF.search(chain(item.context_expr)) for item in node.items)
    return isinstance(node, FUNCTIONS) and any(map(_OFF.search, decorators(node)))


# What else stays


def _retain_graph(program: Program, region: Region) -> list[ast.Call]:
    """Exactly one backward, which retains its graph."""
    module, call = region.module, region.backwards[0]
    again = region.calls_named("grad", "backward", "autograd") != [call] or len(region.backwards) > 1
    if again or gives(module, call, "create_graph", True):
        return []
    return [call] if gives(module, call, "retain_graph", True) else []


def _zero_grad_to_zero(program: Program, region: Region) -> list[ast.Call]:
    """A literal zero_grad(set_to_none=False)."""
    calls = region.calls_named("zero_grad")
    return [call for call in calls if gives(region.module, call, "set_to_none", False, 0)]


def _unbounded_cache(program: Program) -> Iterator[Hit]:
    """The code of a sample stores into a dict of the dataset, under no option and no bound.

    A cache in one process is a choice: silent where every loader surely has no workers.
    """
    if program.loaders and all(loader.constant("num_workers", 0) == 0 for loader in program.loaders):
        return
    for dataset in program.datasets:
        for node, name in unbounded_caches(dataset.module, dataset.node):
            if not _is_option(dataset.module, node, name):
                yield at(
                    dataset.module,
                    node,
                    "medium",
                    f"`{name}` keeps every sample and forgets none; each worker process fills one of its "
                    "own, so memory grows to workers x dataset.",
                )
                break


def _is_option(module: Module, node: ast.AST, name: str) -> bool:
    """Whether another condition than «not there yet» decides about storing."""
    tests = [above.test for above in module.ancestors(node) if isinstance(above, ast.If)]
    asked = {f"self.{one.attr}" for test in tests for one in module.nodes(ast.Attribute, test)}
    return bool(tests) and asked != {name}


RULES: Final[dict[str, Rule]] = {
    "memory/device-growth": _device_growth,
    "memory/empty-cache-in-step": every_step("medium", "torch.cuda.empty_cache"),
    "memory/evaluation-with-grad": _evaluation_with_grad,
    "memory/retain-graph": each_region("low", _retain_graph),
    "memory/unbounded-cache": _unbounded_cache,
    "memory/zero-grad-to-zero": each_region("low", _zero_grad_to_zero),
}
