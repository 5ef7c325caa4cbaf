"""``memory/evaluation-with-grad``: an evaluation loop builds a graph that nothing uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import Function, Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/evaluation-with-grad"
_OFF = re.compile(r"no_grad|inference_mode|set_grad_enabled|requires_grad")
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
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "eval"
        and not call.args
        and isinstance(call.func.value, ast.Name | ast.Attribute)
    }
    for call in calls:
        if chain(call.func) in models and isinstance(call.func, ast.Name | ast.Attribute) and call.args:
            loops = [a for a in module.ancestors(call) if isinstance(a, ast.For)]
            if loops and module.function_of(call) is function:
                return chain(call.func), call
    return None


def _turns_off(module: Module, function: Function) -> bool:
    """Whether gradients, or those of parameters, are switched off anywhere in the function or around it."""
    names = (chain(node) for node in ast.walk(function) if isinstance(node, ast.Attribute | ast.Name))
    around = (node for node in module.ancestors(function) if isinstance(node, ast.FunctionDef | ast.With))
    return any(map(_OFF.search, names)) or any(map(_is_off, around))


def _is_off(node: ast.AST) -> bool:
    """Whether a ``with`` or a decorator turns gradients off for what it contains."""
    if isinstance(node, ast.With | ast.AsyncWith):
        return any(_OFF.search(chain(item.context_expr)) for item in node.items)
    return isinstance(node, ast.FunctionDef) and any(_OFF.search(chain(d)) for d in node.decorator_list)


def _called_without_grad(tree: Tree, function: Function) -> bool:
    """Whether any call of that name stands where gradients are off; unsure counts as yes."""
    return any(any(map(_is_off, module.ancestors(call))) for module, call in tree.callers(function))
