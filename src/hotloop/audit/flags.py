"""Process-wide switches: assignments of torch.backends flags, and whether they surely run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.module import Module
from hotloop.audit.tree import Tree


def flag_settings(module: Module) -> Iterator[tuple[str, ast.Assign, object]]:
    """Assignments to ``torch.backends.*``: name, statement, literal value or UNKNOWN."""
    for assign in module.assigns:
        for target in assign.targets:
            if isinstance(target, ast.Attribute):
                name = module.dotted(target)
                if name.startswith("torch.backends."):
                    yield name, assign, module.constant(assign.value)


def unconditional(module: Module, node: ast.AST) -> bool:
    """Whether ``node`` runs whenever its function does: no condition, loop or handler around it, no early
    return.
    """
    below = node
    for above in module.ancestors(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            before = above.body[: above.body.index(below)] if below in above.body else []
            return not any(isinstance(n, ast.Return) for statement in before for n in ast.walk(statement))
        if isinstance(above, ast.If) and not _is_main(above):
            return False
        if isinstance(above, ast.IfExp | ast.ExceptHandler | ast.For | ast.While | ast.Lambda | ast.ClassDef):
            return False
        below = above
    return True


def _is_main(node: ast.If) -> bool:
    return any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))


def in_training(tree: Tree, module: Module, node: ast.AST) -> bool:
    """Whether ``node`` surely runs in a training program: in a file that trains, or in a function it
    calls.
    """
    training = {region.module for region in tree.regions}
    function = module.function_of(node)
    if function is None:
        return module in training and unconditional(module, node)
    called = [where for where, _ in tree.callers(function)]
    own = function.name == "main" or any(region.function is function for region in tree.regions)
    return unconditional(module, node) and (any(where in training for where in called) or own)
