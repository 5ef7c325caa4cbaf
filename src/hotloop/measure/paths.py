"""Objects that expressions name, by path: ``a`` or ``a.b``, also of ``a.b[i]``, and what was made of what."""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping

from hotloop.measure.statements import FunctionNode, own_nodes


def texts(node: ast.AST) -> Iterator[str]:
    """The strings of an expression or a function."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def handed(call: ast.Call, callee: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Parameter -> argument, as far as the call shows."""
    given = callee.args
    parameters = [one.arg for one in (*given.posonlyargs, *given.args)]
    result: dict[str, ast.expr] = {}
    if parameters[:1] in (["self"], ["cls"]):
        if isinstance(call.func, ast.Attribute) and callee.name != "__init__":
            result[parameters[0]] = call.func.value
        elif callee.name == "__call__":
            result[parameters[0]] = call.func
        parameters = parameters[1:]
    for name, value in zip(parameters, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        result[name] = value
    known = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    result.update({one.arg: one.value for one in call.keywords if one.arg in known and one.arg is not None})
    return result


def bound_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Names that are a function's own: its parameters and what it assigns."""
    own, outer = set(), set()
    for child in own_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            own.add(child.id)
        elif isinstance(child, ast.arg):
            own.add(child.arg)
        elif isinstance(child, ast.Global):
            outer.update(child.names)
    return frozenset(own - outer)


def made_of(node: FunctionNode) -> dict[str, set[str]]:
    """Names that calls were bound to -> what those were given: a loader is made of a dataset. Two names of
    one object are made of each other.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for child in own_nodes(node):
        if isinstance(child, ast.Assign):
            for target in child.targets:
                for one, value in _pairs(target, child.value):
                    found[path_of(one)] |= set(objects(value)) - {path_of(one)}
                    if is_plain(value):
                        found[path_of(value)].add(path_of(one))
        elif isinstance(child, ast.withitem) and isinstance(child.optional_vars, ast.Name):
            found[child.optional_vars.id] |= set(objects(child.context_expr))
    return found


def held_by_self(node: FunctionNode) -> dict[str, set[str]]:
    """The same for what a method keeps in its object: of what else the object keeps each was made."""
    relation = made_of(node)
    kept = [name for name in relation if name.startswith("self.")]
    return {
        name: {other for other in kept if other != name and reaches(relation, name, other)} for name in kept
    }


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The plain targets of an assignment, each with the call or the name that it is bound to."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        if len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from _pairs(one, its)
    elif is_plain(target) and isinstance(value, ast.Call | ast.Name | ast.Attribute):
        yield target, value


@functools.cache
def imported(tree: ast.Module) -> frozenset[str]:
    """Names of modules and of what was taken from them."""
    return frozenset(
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


def objects(node: ast.AST) -> Iterator[str]:
    """The objects an expression hands on: not what it calls."""
    if isinstance(node, ast.Call):
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from objects(given)
    elif isinstance(node, ast.Name | ast.Attribute) and path_of(node):
        yield path_of(node)
    elif isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Starred):
        for child in ast.iter_child_nodes(node):
            yield from objects(child)


def reaches(relation: Mapping[str, set[str]], name: str, path: str) -> bool:
    """Whether an object was made of another one, or of what was made of it."""
    seen: set[str] = set()
    rest = [name]
    while rest:
        one = rest.pop()
        if one not in seen:
            seen.add(one)
            # What an object holds may have another name; of ``self`` all of a class would be made.
            holds = f"{one}." if one not in ("self", "cls") else " "
            names = [own for own in relation if own == one or own.startswith(holds)]
            used = {each for own in names for each in relation[own]}
            if any(overlap(each, path) for each in used):
                return True
            rest += used
    return False


def overlap(one: str, other: str) -> bool:
    """Whether one of two objects is the other one, or is held by it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def is_plain(node: ast.AST) -> bool:
    """Whether an expression names an object: ``a``, ``a.b``."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_plain(node.value))


def path_of(node: ast.AST) -> str:
    """``a.b`` of ``a.b``, ``a.b[i]`` and ``a.b[i].c``; "" where no name stands in front."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        else:
            names.clear()
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, "" of what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
