"""Expressions as values: chains of keys, what a name was given, where a parameter is passed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst
from libcst import metadata as meta

from hotloop.remedy.source.code import Code, Function, last_name

#: What draws from Python's or numpy's generators, as qualified names begin.
HOST_DRAWS: Final = ("random.", "numpy.random.")
#: Methods of containers and arrays that change what they are called on.
CHANGES: Final = frozenset([
    "append", "extend", "insert", "pop", "popitem", "remove", "clear", "sort", "reverse", "update",
    "setdefault", "fill", "put",
])  # fmt: skip


def text_of(node: cst.CSTNode) -> str | None:
    """The text of a string literal."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


def looked_up(node: cst.CSTNode) -> tuple[str, cst.BaseExpression | None] | None:
    """Key and default of ``x.get("key", default)`` and ``getattr(x, "key", default)``."""
    if not isinstance(node, cst.Call):
        return None
    args = [arg.value for arg in node.args]
    if last_name(node.func) == "get" and isinstance(node.func, cst.Attribute) and len(args) in (1, 2):
        key = text_of(args[0])
        return (key, args[1] if len(args) == 2 else None) if key else None
    if isinstance(node.func, cst.Name) and node.func.value == "getattr" and len(args) in (2, 3):
        key = text_of(args[1])
        return (key, args[2] if len(args) == 3 else None) if key else None
    return None


def chain_of(node: cst.BaseExpression) -> tuple[cst.BaseExpression, tuple[str, ...]]:
    """``a.b["c"].get("d")`` as ``a`` and (b, c, d); what is no such chain is its own root."""
    keys: list[str] = []
    while True:
        got = looked_up(node)
        if isinstance(node, cst.Attribute):
            keys.append(node.attr.value)
            node = node.value
        elif got is not None and isinstance(node, cst.Call):
            keys.append(got[0])
            node = node.func.value if isinstance(node.func, cst.Attribute) else node.args[0].value
        elif isinstance(node, cst.Subscript) and len(node.slice) == 1:
            index = node.slice[0].slice
            key = text_of(index.value) if isinstance(index, cst.Index) else None
            if key is None:
                break
            keys.append(key)
            node = node.value
        else:
            break
    return node, tuple(reversed(keys))


def chains(code: Code, function: Function | None) -> Iterator[tuple[cst.BaseExpression, tuple[str, ...]]]:
    """Every longest chain of keys in a function and in the module itself: ``cfg["data"]["root"]``."""
    for node in code.nodes(cst.CSTNode):  # type: ignore[type-abstract]
        if not isinstance(node, cst.Attribute | cst.Subscript | cst.Call) or (
            isinstance(node, cst.Call) and looked_up(node) is None
        ):
            continue
        if code.function_of(node) not in (function, None):
            continue
        above = code.parents.get(node)
        if isinstance(above, cst.Attribute | cst.Subscript) and above.value is node:
            continue
        keys = chain_of(node)[1]
        if keys:
            yield node, keys


def assignment(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression | None]:
    """``name = value`` or ``name: type = value`` as a pair."""
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        return last_name(statement.targets[0].target), statement.value
    if isinstance(statement, cst.AnnAssign):
        return last_name(statement.target), statement.value
    return "", None


def value_of(code: Code, bound: cst.CSTNode) -> cst.BaseExpression | None:
    """The expression a stored name stands for; ``args, rest = parse_known_args()`` gives the call."""
    above = code.parents.get(bound)
    if isinstance(above, cst.AssignTarget):
        above = code.parents.get(above)
        return above.value if isinstance(above, cst.Assign) else None
    if isinstance(above, cst.AnnAssign | cst.NamedExpr):
        return above.value
    if isinstance(above, cst.Element):
        outer = code.parents[above]
        assign = code.parents.get(code.parents.get(outer, outer))
        if isinstance(assign, cst.Assign) and isinstance(outer, cst.Tuple):
            at = outer.elements.index(above)
            if isinstance(assign.value, cst.Tuple) and len(assign.value.elements) == len(outer.elements):
                return assign.value.elements[at].value
            is_call = (
                isinstance(assign.value, cst.Call) and last_name(assign.value.func) == "parse_known_args"
            )
            return assign.value if is_call and at == 0 else None
    return None


def is_changed(code: Code, one: meta.BaseAssignment, keys: tuple[str, ...]) -> bool:
    """Whether an entry of a mapping, or a field, is written after the mapping was made."""
    if not keys:
        return False
    for access in one.references:
        above = code.parents.get(access.node)
        while isinstance(above, cst.Subscript | cst.Attribute):
            target = code.parents.get(above)
            if isinstance(target, cst.AssignTarget | cst.AugAssign) and chain_of(above)[1][-1:] == keys[-1:]:
                return True
            above = target
    return False


def executes(code: Code) -> bool:
    """Whether a file may set its global names otherwise: ``exec(...)``, ``globals()[key] = value``."""
    for call in code.nodes(cst.Call):
        name = call.func.value if isinstance(call.func, cst.Name) else ""
        above = code.parents.get(call)
        if name == "exec":
            return True
        if name not in ("globals", "vars", "locals"):
            continue
        if isinstance(above, cst.Subscript) and isinstance(code.parents.get(above), cst.AssignTarget):
            return True
        if isinstance(above, cst.Attribute) and above.attr.value in ("update", "setdefault", "__setitem__"):
            return True
    return False


def setdefault_of(code: Code, function: Function, mapping: str, key: str) -> cst.BaseExpression | None:
    """What a function's only ``mapping.setdefault("key", value)`` gives."""
    found = [
        call.args[1].value
        for call in code.nodes(cst.Call, function)
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value == "setdefault"
        and last_name(call.func.value) == mapping
        and len(call.args) == 2
        and text_of(call.args[0].value) == key
    ]
    return found[0] if len(found) == 1 else None


def bound_to_self(code: Code, owner: cst.ClassDef, name: str) -> Iterator[cst.BaseExpression]:
    """Everything ``self.NAME`` is bound to in a class."""
    for statement in code.nodes(cst.Assign, owner):
        for target in statement.targets:
            node = target.target
            if (
                isinstance(node, cst.Attribute)
                and node.attr.value == name
                and last_name(node.value) == "self"
            ):
                yield statement.value
    for annotated in code.nodes(cst.AnnAssign, owner):
        node = annotated.target
        if isinstance(node, cst.Attribute) and node.attr.value == name and annotated.value is not None:
            yield annotated.value


def parameters_of(function: Function) -> list[cst.Param]:
    """The parameters that have a name of their own."""
    params = function.params
    return [*params.posonly_params, *params.params, *params.kwonly_params]


def position_of(code: Code, function: Function, param: cst.Param, call: cst.Call) -> int | None:
    """At which position of a call a parameter is given."""
    plain = [*function.params.posonly_params, *function.params.params]
    if param not in plain:
        return None
    is_method = isinstance(code.parents.get(code.parents.get(function, function)), cst.ClassDef)
    static = any(last_name(d.decorator) == "staticmethod" for d in function.decorators)
    bound = is_method and not static and plain and plain[0].name.value in ("self", "cls")
    return plain.index(param) - (1 if bound else 0)
