"""What an attribute of a class is made as, where it is made once and nothing at hand makes it another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from hotloop.remedy.source.code import Code, argument, is_member, is_self, last_name
from hotloop.remedy.source.twice import is_changed_at

_PLAIN_BASES: Final = frozenset(["torch.nn.Module", "torch.nn.modules.module.Module", "object"])
#: What reaches attributes past their names.
_REFLECTS: Final = frozenset(
    ["__dict__", "_buffers", "_modules", "_parameters", "__setattr__", "__setstate__"]
)
_SETS: Final = frozenset([
    "setattr", "delattr", "register_buffer", "register_parameter", "register_module", "add_module",
])  # fmt: skip
#: What reads the tensor it is handed.
_READS: Final = frozenset(
    ["masked_fill", "masked_fill_", "register_buffer", "add", "add_", "rearrange", "print"]
)
#: What gives the same memory.
_VIEWS: Final = frozenset([
    "view", "reshape", "unsqueeze", "squeeze", "expand", "transpose", "permute", "contiguous", "detach",
    "to", "bool", "float", "type", "type_as", "flatten", "narrow", "select", "t", "cuda",
])  # fmt: skip


def settled(
    code: Code, codes: Sequence[Code], owner: cst.ClassDef, name: str, *, tensor: bool = False
) -> cst.BaseExpression | None:
    """What ``self.NAME`` is made as by the constructor, None where it may be something else.

    ``tensor``: nor is what it holds changed in place, or loaded.
    """
    bases = [code.qualified(base.value) or last_name(base.value) for base in owner.bases]
    if not all(base in _PLAIN_BASES for base in bases):
        return None
    made = list(_made(code, owner, name))
    if len(made) != 1:
        return None
    at, value = made[0]
    for each in codes:
        if derives(each, owner.name.value) or any(_is_set(each, name, owner, at)):
            return None
        if tensor and any(_is_changed(each, name, owner, at)):
            return None
    return value


def derives(code: Code, name: str) -> bool:
    """Whether a file has a class with a base of that name."""
    return any(last_name(base.value) == name for each in code.nodes(cst.ClassDef) for base in each.bases)


def _made(code: Code, owner: cst.ClassDef, name: str) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    """What the constructor gives an attribute whichever way it goes, with the target."""
    for function in owner.body.body:
        if not isinstance(function, cst.FunctionDef) or function.name.value != "__init__":
            continue
        for line in function.body.body:
            for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                yield from _given(small, name)


def _given(small: cst.CSTNode, name: str) -> Iterator[tuple[cst.CSTNode, cst.BaseExpression]]:
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        said, value = argument(small.value, "name", 0), argument(small.value, "tensor", 1)
        named = isinstance(said, cst.SimpleString) and said.evaluated_value == name
        if named and value is not None and last_name(small.value.func) == "register_buffer":
            yield small.value, value
    target = small.targets[0].target if isinstance(small, cst.Assign) and len(small.targets) == 1 else None
    target = small.target if isinstance(small, cst.AnnAssign) else target
    value = small.value if isinstance(small, cst.Assign | cst.AnnAssign) else None
    if target is None or value is None:
        return
    if _is_own(target, name):
        yield target, value
    if isinstance(target, cst.Tuple) and isinstance(value, cst.Tuple):
        if len(target.elements) == len(value.elements):
            pairs = zip(target.elements, value.elements, strict=True)
            yield from ((to.value, given.value) for to, given in pairs if _is_own(to.value, name))
    elif isinstance(target, cst.Tuple) and isinstance(value, cst.GeneratorExp | cst.ListComp):
        yield from ((to.value, value.elt) for to in target.elements if _is_own(to.value, name))


def _is_own(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Attribute) and is_self(node.value) and node.attr.value == name


def _is_set(code: Code, name: str, owner: cst.ClassDef, made: cst.CSTNode) -> Iterator[bool]:
    """Whether anything but ``made`` may bind the attribute."""
    for node in code.nodes(cst.Attribute):
        if node.attr.value in _REFLECTS:
            yield True
        mine = node.attr.value == name and node is not made and not _is_of_another(code, node, owner)
        yield mine and is_changed_at(code, node) and not _is_of_layers(code, node)
    for call in code.nodes(cst.Call):
        called = last_name(call.func)
        if called == "vars":
            yield isinstance(code.parents.get(call), cst.Attribute | cst.Subscript)
        elif called in _SETS and call is not made:
            said = argument(call, "name", 0 if isinstance(call.func, cst.Attribute) else 1)
            other = isinstance(said, cst.SimpleString) and said.evaluated_value != name
            own = isinstance(call.func, cst.Attribute) and is_self(call.func.value)
            inside = code.above(call, cst.ClassDef)
            yield not other and not (own and inside is not None and inside is not owner)


def _is_changed(code: Code, name: str, owner: cst.ClassDef, made: cst.CSTNode) -> Iterator[bool]:
    """Whether the tensor may be changed in place, or loaded."""
    if isinstance(made, cst.Call):  # of register_buffer
        yield "load_state_dict" in code.text.text and not _is_left_out(made)
        yield "buffers(" in code.text.text
    for node in code.nodes(cst.Attribute):
        if node.attr.value == name and node is not made and not _is_of_another(code, node, owner):
            yield not _is_of_layers(code, node) and may_change(code, node)


def _is_left_out(made: cst.Call) -> bool:
    """Whether a buffer is no part of what is saved."""
    persistent = argument(made, "persistent", 2)
    return persistent is not None and last_name(persistent) == "False"


def _is_of_another(code: Code, node: cst.Attribute, owner: cst.ClassDef) -> bool:
    """Whether it is ``self.NAME`` of a class that has nothing to do with it."""
    inside = code.above(node, cst.ClassDef)
    return is_self(node.value) and inside is not None and inside is not owner


def _is_of_layers(code: Code, node: cst.Attribute) -> bool:
    """Whether it is of a layer of torch's: ``if isinstance(m, nn.Linear): nn.init.zeros_(m.bias)``"""
    receiver, above = code.source(node.value), code.parents.get(node)
    while above is not None:
        if isinstance(above, cst.If) and code.holds(above.body, node) and not _has_or(code, above.test):
            for call in code.nodes(cst.Call, above.test):
                kinds = call.args[1].value if last_name(call.func) == "isinstance" else None
                each = [one.value for one in kinds.elements] if isinstance(kinds, cst.Tuple) else [kinds]
                if kinds is not None and code.source(call.args[0].value) == receiver:
                    return all(one is not None and _is_layer(code.qualified(one)) for one in each)
        above = code.parents.get(above)
    return False


def _has_or(code: Code, test: cst.BaseExpression) -> bool:
    return any(True for _ in code.nodes(cst.Or, test)) or any(True for _ in code.nodes(cst.Not, test))


def _is_layer(whole: str) -> bool:
    return whole.startswith("torch.nn.") and whole not in _PLAIN_BASES


def may_change(code: Code, node: cst.BaseExpression, seen: frozenset[str] = frozenset()) -> bool:
    """Whether the tensor an expression stands for may be changed in place by what it stands in."""
    top: cst.CSTNode = node
    above = code.parents.get(node)
    while isinstance(above, cst.Subscript | cst.Attribute) and above.value is top:
        call = code.parents.get(above)
        called = isinstance(call, cst.Call) and call.func is above
        if called and last_name(above) not in _VIEWS:
            break
        top = call if called and isinstance(call, cst.Call) else above
        above = code.parents.get(top)
    call = code.parents.get(above) if isinstance(above, cst.Arg) else None
    if isinstance(above, cst.Arg) and isinstance(call, cst.Call):
        whole = code.qualified(call.func)
        if not whole and last_name(call.func) in _READS | _VIEWS and not above.star:
            return False
        told = argument(call, "inplace") is not None or any(
            last_name(arg.value) == "True" for arg in call.args
        )
        return not whole.startswith("torch.") or told or is_changed_at(code, top)
    if is_changed_at(code, node) or is_changed_at(code, top):
        return True
    if not isinstance(above, cst.Assign) or above.value is not top:
        return False
    targets = [one.target for one in above.targets]
    names = [one for one in targets if isinstance(one, cst.Name)]
    return len(names) < len(targets) or any(not is_left_alone(code, one, seen) for one in names)


def is_left_alone(code: Code, name: cst.Name, seen: frozenset[str] = frozenset()) -> bool:
    """Whether the tensor of a name is changed in place nowhere in its function, or its file."""
    if name.value in seen:
        return True
    seen |= {name.value}
    bound = code.assignments(name, name.value)
    function = code.function_of(bound[0].node if bound else name)
    return not any(
        one.value == name.value and not _is_bound(code, one) and _is_value(code, one)
        and may_change(code, one, seen)
        for one in code.nodes(cst.Name, function)
    )  # fmt: skip


def _is_value(code: Code, name: cst.Name) -> bool:
    """Whether a name is no field of something, no keyword and no parameter."""
    return not is_member(code, name) and not isinstance(code.parents[name], cst.Param)


def _is_bound(code: Code, name: cst.Name) -> bool:
    """Whether a name is given a value, of its own or as one of several."""
    node: cst.CSTNode = name
    while isinstance(code.parents.get(node), cst.Element | cst.Tuple | cst.List):
        node = code.parents[node]
    return isinstance(code.parents.get(node), cst.AssignTarget | cst.AnnAssign)
