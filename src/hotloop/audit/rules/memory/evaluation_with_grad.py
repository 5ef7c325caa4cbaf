"""``memory/evaluation-with-grad``: an evaluation loop builds a graph that nothing uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Function, Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/evaluation-with-grad"
_OFF = ("no_grad", "inference_mode", "set_grad_enabled")
_NEEDS = ("backward", "grad", "requires_grad_", "enable_grad", "jacobian", "autograd", "manual_backward")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a function that calls model.eval(), loops over batches, and nowhere turns gradients off."""
    for module in tree.modules:
        for function in module.functions:
            found = _forward(module, function)
            if found is None or _turns_off(module, function) or _called_without_grad(tree, function):
                continue
            model, call = found
            yield hit(
                ID,
                module,
                call,
                "medium",
                f"{function.name}() evaluates {model} with gradients on: every forward pass keeps its "
                "activations until its outputs are gone.",
                "Decorate it with @torch.inference_mode() (or @torch.no_grad()).",
            )


def _forward(module: Module, function: Function) -> tuple[str, ast.Call] | None:
    """A call, in a loop, of the very thing that ``eval()`` was called on."""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    if any(chain(call.func).rpartition(".")[2] in (*_NEEDS, "train", "step") for call in calls):
        return None
    models = {
        chain(call.func.value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "eval" and not call.args
    }
    for call in calls:
        if chain(call.func) in models and isinstance(call.func, ast.Name | ast.Attribute) and call.args:
            loops = [a for a in module.ancestors(call) if isinstance(a, ast.For)]
            if loops and module.function_of(call) is function:
                return chain(call.func), call
    return None


def _turns_off(module: Module, function: Function) -> bool:
    names = {
        name
        for node in ast.walk(function)
        for name in [chain(node)]
        if isinstance(node, ast.Attribute | ast.Name)
    }
    if any(name.rpartition(".")[2] in _OFF for name in names):
        return True
    above = [
        a for a in module.ancestors(function) if isinstance(a, ast.With | ast.FunctionDef | ast.ClassDef)
    ]
    return any(
        chain(item.context_expr).rpartition(".")[2] in _OFF
        for a in above
        if isinstance(a, ast.With)
        for item in a.items
    ) or any("set_grad_enabled" in line for line in module.lines)


def _called_without_grad(tree: Tree, function: Function) -> bool:
    """Whether any call of that name stands where gradients are off; unsure counts as yes."""
    for module, call in tree.callers(function):
        for above in module.ancestors(call):
            if isinstance(above, ast.With | ast.AsyncWith) and any(
                chain(item.context_expr).rpartition(".")[2] in _OFF for item in above.items
            ):
                return True
            if isinstance(above, ast.FunctionDef) and any(
                chain(d).rpartition(".")[2] in _OFF for d in above.decorator_list
            ):
                return True
    return False
