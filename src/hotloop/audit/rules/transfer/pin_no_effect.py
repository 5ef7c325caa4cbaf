"""``transfer/pin-no-effect`` in source: the samples are of a class that pin_memory passes over."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import Loader, made_class
from hotloop.audit.module import Module, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "transfer/pin-no-effect"
_PINNED_BASES = ("dict", "list", "tuple", "NamedTuple", "UserDict", "Mapping", "Sequence", "BatchEncoding")
_COPIES = ("copy.copy", "copy.deepcopy")
_MODULES = ("torch.nn.Module", "torch.nn.modules.module.Module")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where the collate_fn surely returns an object of a class of the tree without pin_memory(), or the
    dataset a module that batch_size=None hands through.
    """
    classes = {node.name: (module, node) for module in tree.modules for node in module.classes}
    for loader in tree.loaders:
        if loader.constant("batch_size", 1) is None and "pin_memory" in loader.given:
            yield from _handed_through(tree, loader, classes)
            continue
        collate = loader.given.get("collate_fn")
        if loader.constant("pin_memory", False) is not True or not isinstance(collate, ast.Name):
            continue
        target = tree.target(loader.module, ast.Call(func=collate, args=[], keywords=[]))
        if target is None:
            continue
        returned = [n.value for n in ast.walk(target[1]) if isinstance(n, ast.Return)]
        names = {_class_name(target[0], value) for value in returned}
        name = names.pop() if len(names) == 1 else ""
        found = classes.get(name)
        if found is None or found[0].method(found[1], "pin_memory") is not None:
            continue
        bases = [chain(base).rpartition(".")[2] for base in found[1].bases]
        if found[1].decorator_list or any(base in _PINNED_BASES or base in classes for base in bases):
            continue
        yield hit(
            ID,
            loader.module,
            loader.call,
            "medium",
            f"pin_memory=True has no effect: batches are {name} objects, and PyTorch pins only tensors, "
            f"mappings, "
            "sequences and objects with a pin_memory() method.",
            f"Give {name} a pin_memory() method that pins its tensors and returns self.",
        )


def _handed_through(
    tree: Tree, loader: Loader, classes: dict[str, tuple[Module, ast.ClassDef]]
) -> Iterator[Finding]:
    """Without a batch size a sample is pinned as it is: an nn.Module never is."""
    given = [one for one in tree.datasets if one.getitem is not None]
    made = made_class(loader)
    data = [one for one in given if one.name == made] or given
    if len(data) > 1:
        data = [one for one in data if one.module is loader.module or one.name in loader.module.imports]
    if loader.constant("pin_memory", False) is False or len(data) != 1 or data[0].getitem is None:
        return
    module = data[0].module
    for node in ast.walk(data[0].getitem):
        if not isinstance(node, ast.Return):
            continue
        names = _made(module, node.value, frozenset())
        found = classes.get(names.pop()) if len(names) == 1 else None
        if found is None or found[0].method(found[1], "pin_memory") is not None:
            continue
        if any(found[0].dotted(base) in _MODULES for base in found[1].bases):
            yield hit(
                ID,
                loader.module,
                loader.call,
                "medium",
                f"pin_memory has no effect on what {data[0].name}.__getitem__ returns ({module.name}:"
                f"{node.lineno}): a {found[1].name}, which is an nn.Module, and PyTorch pins only tensors, "
                "mappings, sequences and objects with a pin_memory() method.",
                "Return a dictionary of tensors, or give the class a pin_memory() method that pins them.",
            )
            return


def _made(module: Module, node: ast.AST | None, seen: frozenset[str]) -> set[str]:
    """Names of the classes whose objects an expression can be; "" where one cannot be seen."""
    if isinstance(node, ast.Name):
        if node.id in seen:
            return set()
        values = module.bindings(node) or [None]
        return {name for value in values for name in _made(module, value, seen | {node.id})}
    if isinstance(node, ast.Call):
        if module.dotted(node.func) in _COPIES and node.args:
            return _made(module, node.args[0], seen)
        return {node.func.id if isinstance(node.func, ast.Name) else ""}
    if isinstance(node, ast.Subscript):
        return {name for value in module.values(node.value) for name in _made_item(module, value)} or {""}
    return {""}


def _made_item(module: Module, node: ast.expr | None) -> set[str]:
    """The same of one item of a list: of a comprehension, or of an argument that says what is in it."""
    if isinstance(node, ast.ListComp):
        return _made(module, node.elt, frozenset())
    function = module.function_of(node) if isinstance(node, ast.Name) else None
    for given in function.args.args if function is not None else ():
        said = given.annotation
        if isinstance(node, ast.Name) and given.arg == node.id and isinstance(said, ast.Subscript):
            held = chain(said.value).rpartition(".")[2]
            return {chain(said.slice)} if held in ("list", "List", "Sequence") else {""}
    return {""}


def _class_name(module: Module, node: ast.expr | None) -> str:
    value = module.value(node) if isinstance(node, ast.Name) else node
    return value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
