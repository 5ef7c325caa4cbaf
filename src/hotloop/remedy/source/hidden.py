"""What is set without a name of its own in the text: attributes by strings, variables by dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import libcst as cst

from hotloop.remedy.source.code import Code, argument, is_self, last_name

_SET_BY_NAME: Final = frozenset(["exec", "eval", "setattr", "delattr"])
_NAMESPACES: Final = frozenset(["globals", "locals", "vars"])
_FILLS: Final = frozenset(["update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__"])
#: What all that is made later depends on.
_EVERYWHERE: Final = ("torch.set_default_dtype", "torch.set_default_device", "torch.set_default_tensor_type")


def sets(code: Code) -> Iterator[cst.CSTNode]:
    """Where something is set that is not named there."""
    for call in code.nodes(cst.Call):
        name, plain = last_name(call.func), isinstance(call.func, cst.Name)
        by_name = plain and name in _SET_BY_NAME and not code.assignments(call.func, name)
        into = name in ("parse_args", "parse_known_args") and argument(call, "namespace", 1) is not None
        known = by_name and not _of_itself(code, call)
        if known or into or name == "__setattr__" or code.qualified(call.func) in _EVERYWHERE:
            yield call
    for node in stored(code):
        if _is_namespace(code, _root(node)):
            yield node


def stored(code: Code) -> Iterator[cst.CSTNode]:
    """Every attribute and part that is set, deleted or filled: ``a.b``, ``a[0].c``, the ``a.b`` of
    ``a.b.update(...)``.
    """
    parts: list[cst.Attribute | cst.Subscript] = [*code.nodes(cst.Attribute), *code.nodes(cst.Subscript)]
    for node in parts:
        above = code.parents.get(node)
        filled = isinstance(above, cst.Call) and above.func is node and last_name(node) in _FILLS
        if filled or is_stored(code, node):
            yield node


def is_stored(code: Code, node: cst.CSTNode) -> bool:
    """Whether an expression is what a statement gives a value, or takes it from."""
    above = code.parents.get(node)
    if isinstance(above, cst.Element):
        outer: cst.CSTNode | None = code.parents.get(above)
        return outer is not None and is_stored(code, outer)
    if isinstance(above, cst.For | cst.CompFor | cst.AugAssign | cst.AnnAssign):
        return above.target is node
    return isinstance(above, cst.AssignTarget | cst.AsName | cst.Del)


def _root(node: cst.CSTNode) -> cst.CSTNode:
    """What an attribute or part is of: the call, or the variable, at its beginning."""
    while isinstance(node, cst.Attribute | cst.Subscript):
        if isinstance(node, cst.Attribute) and node.attr.value == "__dict__":
            return node
        node = node.value
    return node


def _is_namespace(code: Code, root: cst.CSTNode) -> bool:
    """Whether a root stands for variables or attributes by their names, or for an object that has no name."""
    if isinstance(root, cst.Attribute):
        return True
    if isinstance(root, cst.Call):
        func = root.func
        known = isinstance(func, cst.Name) and func.value in _NAMESPACES | {"getattr", "__import__"}
        return known or code.qualified(func) in ("importlib.import_module", "sys._getframe")
    return isinstance(root, cst.Name) and code.qualified(root) in ("sys", "sys.modules", "builtins")


def _of_itself(code: Code, call: cst.Call) -> bool:
    """``setattr(self, name, value)`` in a constructor."""
    function = code.function_of(call)
    own = bool(call.args) and is_self(call.args[0].value)
    return own and function is not None and function.name.value == "__init__"


def handed_on(code: Code, modules: tuple[str, ...]) -> Iterator[cst.CSTNode]:
    """Where a module is read as a value: another name, or what it is given to, may draw from it as well."""
    nodes: list[cst.Name | cst.Attribute] = [*code.names(), *code.nodes(cst.Attribute)]
    for node in nodes:
        above = code.parents.get(node)
        given = isinstance(above, cst.Arg | cst.Element | cst.DictElement | cst.Return)
        given = given or (isinstance(above, cst.Assign | cst.AnnAssign) and above.value is node)
        if isinstance(above, cst.Arg) and above.keyword is node:
            continue
        if given and code.qualified(node) in modules:
            yield node
    for node in nodes:
        by_name = isinstance(node, cst.Name) and node.value == "__import__"
        if by_name or code.qualified(node) in ("sys.modules", "importlib.import_module"):
            yield node
