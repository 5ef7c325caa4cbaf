"""Lists that keep tensors while the loop goes on: ``losses.append(loss.item())``, read when it has ended."""

from __future__ import annotations

from typing import Final

import libcst as cst

from hotloop.remedy.source.code import last_name
from hotloop.remedy.source.in_loop import InLoop
from hotloop.remedy.source.kept import Kept
from hotloop.remedy.source.scalars import Arithmetic, Kind

#: Calls that keep nothing of a list they are given.
_LOOKS: Final = frozenset(
    ["len", "sum", "max", "min", "print", "sorted", "mean", "median", "std", "array", "asarray"]
)


def as_list(view: InLoop, values: Arithmetic, name: str) -> Kept:
    """A list of the function's own, begun empty and appended to in the loop. Raises Cannot."""
    loop, kept = view.loop, Kept()
    for bound in view.bindings(name):
        value = view.given(bound)
        if view.grows(bound) or not (isinstance(value, cst.List) and not value.elements):
            raise view.cannot(f"{name} does not begin as a list of its own", bound)
    if isinstance(loop, cst.While):
        raise view.cannot(f"{name} would grow on the device in a loop whose end is not known", loop)
    _ends_plainly(view, name)
    kinds: set[Kind] = set()
    for node in view.accesses(name):
        given = appended(view.small(node))
        if not view.steps(node):
            _outside(view, name, node)
        elif given is not None and given[2] is node:
            kinds.add(_append(view, values, given[1], kept))
        elif not _leaves(view, node):
            branch = view.rare(node)
            if branch is None or not isinstance(branch.body, cst.IndentedBlock):
                raise view.cannot(f"{name} is read in every step", node)
            if not _empties(view, name, branch):
                raise view.cannot(f"{name} is read here too, the longer the more", node)
            if branch.body.body[0] not in kept.before:
                kept.before.append(branch.body.body[0])
    if len(kinds) != 1:
        raise view.cannot(f"{name} holds whole and broken numbers", loop)
    kept.kind = kinds.pop()
    kept.behind.append(loop)
    kept.remarks.append(f"{name} keeps its numbers on the device until the loop ends: 512 bytes each")
    return kept


def appended(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression, cst.Name] | None:
    """Name and value of ``losses.append(value)``."""
    call = statement.value if isinstance(statement, cst.Expr) else None
    if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute) or len(call.args) != 1:
        return None
    name = call.func.value
    plain = call.args[0].keyword is None and not call.args[0].star
    if call.func.attr.value != "append" or not isinstance(name, cst.Name) or not plain:
        return None
    return name.value, call.args[0].value, name


def _append(view: InLoop, values: Arithmetic, value: cst.BaseExpression, kept: Kept) -> Kind:
    kinds = values.kinds(value)
    if len(kinds) != 1:
        raise view.cannot("what is appended here is no number of the device", value)
    kept.along |= values.held_in(value)
    kind: Kind = "int" if kinds == {"int"} and values.whole(value) else "float"
    kept.texts += values.bound(value, kind)
    return kind


def _ends_plainly(view: InLoop, name: str) -> None:
    """Raises Cannot where a loop that ends by an error does not end what can see the list."""
    above: cst.CSTNode | None = view.code.parents.get(view.loop)
    while above is not None and not isinstance(above, cst.FunctionDef):
        items = [one.item for one in above.items] if isinstance(above, cst.With) else []
        suppressed = any(isinstance(one, cst.Call) and last_name(one.func) == "suppress" for one in items)
        if suppressed or isinstance(above, cst.Try | cst.TryStar):
            raise view.cannot(f"{name} may be read after an error of the loop", above)
        above = view.code.parents.get(above)


def _empties(view: InLoop, name: str, branch: cst.If) -> bool:
    """Whether a list is begun anew under an ``if`` that reads it."""
    code = view.code
    cleared = any(code.source(call.func) == f"{name}.clear" for call in code.nodes(cst.Call, branch.body))
    return cleared or any(code.holds(branch.body, bound) for bound in view.bindings(name))


def _outside(view: InLoop, name: str, node: cst.CSTNode) -> None:
    """Raises Cannot where something else may come to hold the list before the loop ends."""
    code, loop = view.code, view.loop
    at = code.span(node)[0]
    if loop.orelse is not None and code.holds(loop.orelse, node):
        raise view.cannot(f"{name} is read where the loop ends", node)
    behind = at >= code.span(view.outer_loop() or loop)[1]
    if behind or (at >= code.span(loop)[1] and _begins_anew(view, name)) or _leaves(view, node):
        return
    above = code.parents[node]
    call = code.parents[above] if isinstance(above, cst.Arg) else None
    looks = isinstance(call, cst.Call) and last_name(call.func) in _LOOKS
    if not looks and not isinstance(above, cst.Subscript | cst.UnaryOperation | cst.Comparison):
        raise view.cannot(f"{name} may be read elsewhere while the loop goes on", node)


def _begins_anew(view: InLoop, name: str) -> bool:
    """Whether each round of the loops around makes a list of its own, in the loop's own block."""
    block, begin = view.code.parents[view.loop], view.code.span(view.loop)[0]
    for bound in view.bindings(name):
        statement = view.line_of(bound)
        beside = statement is not None and view.code.parents.get(statement) is block
        if beside and view.code.span(bound)[0] < begin:
            return True
    return False


def _leaves(view: InLoop, node: cst.CSTNode) -> bool:
    """Whether only the length is asked, or the list emptied."""
    above = view.code.parents[node]
    if isinstance(above, cst.Arg):
        call = view.code.parents[above]
        return isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "len"
    return isinstance(above, cst.Attribute) and above.attr.value == "clear"
