"""Rows that are made tensors one by one and put together, through ``hotloop.feed`` in one conversion.

Of which kind the rows are shows in no source: what is called in their place looks, and leaves to torch what
only torch knows. Here is asked whether the text says the same with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import libcst as cst

from hotloop.remedy.source.code import Code, is_member, last_name
from hotloop.remedy.source.feeds import imported
from hotloop.remedy.source.layout import begin_of, behind_of, enclosed
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot
from hotloop.remedy.source.values import value_of

ID: Final = "batched-convert"
#: What makes a tensor of a row. ``torch.from_numpy`` costs little more than the copying.
_CONVERTS: Final = frozenset(
    f"torch.{name}" for name in ("tensor", "as_tensor", "FloatTensor", "DoubleTensor", "LongTensor")
)
_JOINS: Final = {
    "torch.stack": "stacked", "torch.cat": "concatenated", "torch.concat": "concatenated",
    "torch.concatenate": "concatenated",
}  # fmt: skip
_OPTIONS: Final = frozenset(["dtype", "device"])
_CASTS: Final = {"float": "float32", "double": "float64", "long": "int64"}
#: What means another thing, or fails in another way, in a generator.
_OF_THE_FRAME: Final = frozenset(
    ["next", "__next__", "super", "locals", "vars", "eval", "exec", "__class__", "dir"]
)
_STOPS: Final = frozenset(["next", "__next__", "StopIteration"])
_SCRIPTS: Final = ("torch.jit.script", "torch.jit.script_method", "torch.fx.symbolic_trace")
_OURS: Final = tuple(f"hotloop.feed.{name}" for name in ("stacked", "concatenated", "converted", "Rows"))
_BY_HAND: Final = (
    "gather the numbers first and convert them once: torch.from_numpy(numpy.array(rows, dtype=...)), or "
    "stacked(torch.tensor, rows) of hotloop.feed"
)


@dataclass(frozen=True, kw_only=True)
class _Conversion:
    """A row that is made a tensor: ``torch.tensor(row, dtype=...).float()``."""

    call: cst.Call
    row: cst.BaseExpression
    options: list[str]  # as they are written behind the rows
    unsqueezed: bool


def batched_convert(plan: Plan, value: Any) -> None:
    """Every place in the function that the finding names where rows are converted. Raises Cannot."""
    place = plan.scene.where.get(ID)
    if place is None:
        raise Cannot("no finding names rows that are converted one by one", write=_BY_HAND)
    code = plan.scene.code(place.file)
    scopes = [one for one in code.nodes(cst.FunctionDef) if code.line(one) <= place.line <= code.end(one)[0]]
    scope: cst.CSTNode = max(scopes, key=code.line, default=code.module)
    _require_not_scripted(code)
    written, refused = 0, []
    named = any(_is_whole(code, call) for call in code.nodes(cst.Call, scope) if _on(code, call, place.line))
    for call in code.nodes(cst.Call, scope):
        if scope is code.module and code.function_of(call) is not None:
            continue
        try:
            with plan.whole():
                written += _rewritten(plan, code, call, named=named)
        except Cannot as cannot:
            refused.append(cannot)
    if written:
        for one in refused:
            plan.remark(f"{code.path.name}:{one.line} is left as it is: {one.why}")
        return
    if refused:
        raise min(refused, key=lambda one: abs(one.line - place.line))
    if any(code.qualified(call.func) in _OURS for call in code.nodes(cst.Call, scope)):
        raise Already("the rows are converted at once already", str(code.path), place.line)
    raise Cannot("no rows are made tensors and put together here", str(code.path), place.line, write=_BY_HAND)


def _require_not_scripted(code: Code) -> None:
    for node in code.nodes(cst.Attribute):
        if code.qualified(node) in _SCRIPTS:
            raise _cannot(code, node, f"{code.source(node)} reads the source")


def _on(code: Code, call: cst.Call, line: int) -> bool:
    return code.line(call) <= line <= code.end(call)[0]


def _cannot(code: Code, node: cst.CSTNode, words: str) -> Cannot:
    return Cannot(words, str(code.path), code.line(node), write=_BY_HAND)


def _rewritten(plan: Plan, code: Code, call: cst.Call, *, named: bool) -> bool:
    """Write one place, where the call is one. Raises Cannot."""
    name = _JOINS.get(code.qualified(call.func))
    if name is not None:
        return _joined(plan, code, call, name) or _appended(plan, code, call, name)
    if named and _is_whole(code, call):
        if "\n" in code.source(call.func):
            return False
        new = imported(plan, code, "converted")
        at, begin = code.span(call.func)[1], begin_of(code, call.args[0])
        opening = code.text.text[at:begin].partition("(")[2]
        between = opening if "\n" in opening else " "
        says = f"{code.source(call.func)} of what may be arrays → hotloop.feed.converted"
        plan.rewrite(code, begin, begin, f"{code.source(call.func)},{between}", "")
        plan.replace(code, call.func, new, says)
        return True
    return False


# -- a list of arrays as it is -------------------------------------------------------------------------------


def _is_whole(code: Code, call: cst.Call) -> bool:
    """``torch.FloatTensor(states)`` of what is a list or a tuple."""
    if code.qualified(call.func) not in _CONVERTS or not call.args or any(arg.star for arg in call.args):
        return False
    first, *rest = call.args
    if first.keyword is not None or any(
        arg.keyword is None or arg.keyword.value not in _OPTIONS for arg in rest
    ):
        return False
    if _inside_a_comprehension(code, call):
        return False
    if isinstance(first.value, cst.Name):
        bound = [one.node for one in code.assignments(first.value, first.value.value)]
        return any(_is_listed(code, one) for one in bound)
    return isinstance(first.value, cst.ListComp) or _is_batch(code, first.value)


def _is_listed(code: Code, bound: cst.CSTNode) -> bool:
    """Whether a name is bound to a list of its own, or is one of ``a, b = zip(*batch)``."""
    above = code.parents.get(bound)
    if isinstance(above, cst.AssignTarget):
        assign = code.parents.get(above)
        return isinstance(assign, cst.Assign) and isinstance(assign.value, cst.List | cst.ListComp)
    outer = code.parents.get(above) if isinstance(above, cst.Element) else None
    target = code.parents.get(outer) if isinstance(outer, cst.Tuple | cst.List) else None
    assign = code.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return isinstance(assign, cst.Assign) and _zips(assign.value)


def _is_batch(code: Code, node: cst.BaseExpression) -> bool:
    """``batch.state`` of ``batch = Transition(*zip(*picked))``."""
    if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name):
        return False
    assigns = [
        code.parents.get(code.parents.get(one.node, one.node))
        for one in code.assignments(node.value, node.value.value)
    ]
    return bool(assigns) and all(
        isinstance(one, cst.Assign)
        and isinstance(one.value, cst.Call)
        and len(one.value.args) == 1
        and one.value.args[0].star == "*"
        and _zips(one.value.args[0].value)
        for one in assigns
    )


def _zips(value: cst.BaseExpression) -> bool:
    return (
        isinstance(value, cst.Call)
        and last_name(value.func) == "zip"
        and len(value.args) == 1
        and value.args[0].star == "*"
    )


def _inside_a_comprehension(code: Code, node: cst.CSTNode) -> bool:
    above = code.parents.get(node)
    while above is not None and not isinstance(above, cst.BaseStatement | cst.BaseSmallStatement):
        if isinstance(above, cst.BaseComp):
            return True
        above = code.parents.get(above)
    return False


# -- rows that are put together ------------------------------------------------------------------------------


def _joined(plan: Plan, code: Code, call: cst.Call, name: str) -> bool:
    """``torch.stack([torch.tensor(row) for row in rows])``"""
    if not call.args or call.args[0].star or call.args[0].keyword is not None:
        return False
    listed = _listed(code, call.args[0].value)
    if isinstance(listed, cst.Call):  # map(torch.tensor, rows)
        convert = listed.args[0].value
        rows = enclosed(code, listed.args[1].value)
        options, unsqueezed = [], False
    elif listed is not None:
        found = _conversion(code, listed.elt)
        if found is None:
            return False
        convert, options, unsqueezed = found.call.func, found.options, found.unsqueezed
        rows = _rows(code, listed, found)
    else:
        return False
    _require_first_dimension(code, call)
    if unsqueezed:
        if name != "concatenated":
            raise _cannot(code, call, "the tensors are turned before they are put together")
        name = "stacked"
    begin, end = begin_of(code, call.args[0]), behind_of(code, call.args[-1])
    opening = code.text.text[code.span(call.func)[1] : begin].partition("(")[2]
    between = opening if "\n" in opening else " "
    given = [code.source(convert), rows, *options]
    closing = code.text.text[end : code.span(call)[1]]
    new = f"{imported(plan, code, name)}({opening}{f',{between}'.join(given)}{closing}"
    if code.source(call).count("#") > new.count("#"):
        raise _cannot(code, call, "a comment stands where nothing is left to say it of")
    says = f"{code.source(call.func)} of {code.source(convert)} of each row → hotloop.feed.{name}"
    plan.replace(code, call, new, says)
    return True


def _listed(code: Code, node: cst.BaseExpression) -> cst.ListComp | cst.GeneratorExp | cst.Call | None:
    """The comprehension, or the ``map`` of a conversion, that a list is made of."""
    if isinstance(node, cst.ListComp):
        return node
    if not isinstance(node, cst.Call) or len(node.args) != 1 or node.args[0].star or node.args[0].keyword:
        return None
    if not _is_builtin(code, node.func, "list") and not _is_builtin(code, node.func, "tuple"):
        return None
    inner = node.args[0].value
    if isinstance(inner, cst.GeneratorExp | cst.ListComp):
        return inner
    mapped = isinstance(inner, cst.Call) and _is_builtin(code, inner.func, "map") and len(inner.args) == 2
    if not mapped or not isinstance(inner, cst.Call) or any(arg.star or arg.keyword for arg in inner.args):
        return None
    return inner if code.qualified(inner.args[0].value) in _CONVERTS else None


def _is_builtin(code: Code, node: cst.BaseExpression, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name and not code.assignments(node, name)


def _conversion(code: Code, node: cst.BaseExpression) -> _Conversion | None:
    """The conversion of one row; None for anything else. Raises Cannot."""
    cast, unsqueezed, call = "", False, node
    while isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
        if code.qualified(call.func):
            break
        method, given = call.func.attr.value, call.args
        if method in _CASTS and not given and not cast:
            cast = method
        elif method == "to" and _is_type(code, call) and not cast:
            cast = code.source(given[0].value)
        elif method == "unsqueeze" and _is_first(code, given) and not unsqueezed:
            unsqueezed = True
        else:
            return None
        call = call.func.value
    if isinstance(call, cst.Call) and code.qualified(call.func) == "torch.from_numpy":
        raise _cannot(code, call, "torch.from_numpy copies nothing, and the rows are put together at once")
    if not isinstance(call, cst.Call) or code.qualified(call.func) not in _CONVERTS or not call.args:
        return None
    first, *rest = call.args
    if first.star or first.keyword is not None:
        return None
    options = []
    for arg in rest:
        if arg.keyword is None or arg.star or arg.keyword.value not in _OPTIONS:
            raise _cannot(code, arg, f"{code.source(arg)} is no type and no device")
        if not _is_fixed(code, arg.value, node):
            raise _cannot(code, arg, f"{code.source(arg.value)} may differ from one row to the next")
        options.append(f"{arg.keyword.value}={code.source(arg.value)}")
    if cast in _CASTS:
        if not isinstance(call.func, cst.Attribute):
            raise _cannot(code, node, f"torch has no name here to say torch.{_CASTS[cast]} with")
        cast = f"{code.source(call.func.value)}.{_CASTS[cast]}"
    options += [f"to={cast}"] if cast else []
    return _Conversion(call=call, row=first.value, options=options, unsqueezed=unsqueezed)


def _is_type(code: Code, call: cst.Call) -> bool:
    """``.to(torch.float32)``"""
    if len(call.args) != 1 or call.args[0].star or call.args[0].keyword is not None:
        return False
    types = ("float", "float32", "double", "float64", "long", "int64")
    return code.qualified(call.args[0].value) in tuple(f"torch.{name}" for name in types)


def _is_first(code: Code, given: Sequence[cst.Arg]) -> bool:
    return len(given) == 1 and not given[0].star and code.source(given[0]) in ("0", "dim=0")


def _is_fixed(code: Code, value: cst.BaseExpression, elt: cst.BaseExpression) -> bool:
    """Whether an option is the same for all rows: a name that no comprehension binds."""
    if isinstance(value, cst.SimpleString):
        return True
    root = value
    while isinstance(root, cst.Attribute):
        root = root.value
    if not isinstance(root, cst.Name):
        return False
    above = code.parents.get(elt)
    for target in code.nodes(cst.CompFor, above):
        if any(name.value == root.value for name in code.nodes(cst.Name, target.target)):
            return False
    return not any(
        isinstance(one.target, cst.Name) and one.target.value == root.value
        for one in code.nodes(cst.NamedExpr, above)
    )


def _rows(code: Code, comp: cst.ListComp | cst.GeneratorExp, found: _Conversion) -> str:
    """The rows as they are gone through: what the comprehension goes over, or a generator. Raises Cannot."""
    _require_the_same_in_a_generator(code, comp)
    loop, row = comp.for_in, found.row
    simple = loop.inner_for_in is None and not loop.ifs and isinstance(loop.target, cst.Name)
    if simple and isinstance(row, cst.Name) and code.source(row) == code.source(loop.target):
        return enclosed(code, loop.iter)
    start, end = code.span(comp)
    if isinstance(comp, cst.ListComp):
        start, end = start + 1, end - 1
    elt, text = code.span(comp.elt), code.text.text
    return f"({text[start : elt[0]]}{_alone(code, row)}{text[elt[1] : end]})"


def _alone(code: Code, row: cst.BaseExpression) -> str:
    """The text of an argument outside of its call. Raises Cannot."""
    if isinstance(row, cst.GeneratorExp):
        raise _cannot(code, row, "torch makes no tensor of a generator")
    text = enclosed(code, row)
    return f"({text})" if isinstance(row, cst.NamedExpr) and not row.lpar else text


def _require_the_same_in_a_generator(code: Code, comp: cst.ListComp | cst.GeneratorExp) -> None:
    loops: list[cst.CompFor] = [*code.nodes(cst.CompFor, comp)]
    waits = any(True for kind in (cst.Await, cst.Yield) for _ in code.nodes(kind, comp))
    if waits or any(loop.asynchronous is not None for loop in loops):
        raise _cannot(code, comp, "the rows are waited for")
    for name in code.nodes(cst.Name, comp):
        if name.value in _OF_THE_FRAME and (name.value in _STOPS or not is_member(code, name)):
            raise _cannot(code, name, f"{name.value} does another thing in a generator")
    called = {last_name(call.func) for call in code.nodes(cst.Call, comp)}
    for function in code.nodes(cst.FunctionDef):
        stops = any(name.value in _STOPS for name in code.nodes(cst.Name, function))
        if stops and function.name.value in called:
            words = f"{function.name.value} may stop an iteration: a generator makes an error of it"
            raise _cannot(code, comp, words)


def _require_first_dimension(code: Code, call: cst.Call) -> None:
    for at, arg in enumerate(call.args[1:]):
        named = arg.keyword.value if arg.keyword is not None else "dim" if not at else ""
        zero = isinstance(arg.value, cst.Integer) and arg.value.evaluated_value == 0
        if arg.star or named not in ("dim", "axis") or not zero:
            raise _cannot(code, call, f"{code.source(arg)}: only rows are put together at once")


# -- rows that are appended in a loop ------------------------------------------------------------------------


def _appended(plan: Plan, code: Code, call: cst.Call, name: str) -> bool:
    """``rows.append(torch.tensor(row))`` again and again, and ``torch.stack(rows)``. Raises Cannot."""
    function = code.function_of(call)
    given = call.args[0] if call.args else None
    if function is None or given is None or given.star or given.keyword is not None:
        return False
    rows = given.value
    if not isinstance(rows, cst.Name):
        return False
    names = [one for one in code.nodes(cst.Name, function) if one.value == rows.value]
    names = [one for one in names if not is_member(code, one)]
    appends = {one: append for one in names if (append := _append_of(code, one)) is not None}
    found = {one: _conversion(code, append.args[0].value) for one, append in appends.items()}
    if not found or not any(found.values()):
        return False
    made = [one for one in found.values() if one is not None]
    hows = {(code.source(one.call.func), *one.options, one.unsqueezed) for one in made}
    if len(hows) > 1 or len(made) < len(found) or made[0].unsqueezed:
        raise _cannot(code, call, f"{rows.value} is not given rows that are all converted alike")
    _require_first_dimension(code, call)
    begun = _begun(code, function, rows, names, set(appends))
    for value in (one.value for one in made[0].call.args[1:]):
        _require_known(code, function, value)
    new = f"{imported(plan, code, 'Rows')}({', '.join([code.source(made[0].call.func), *made[0].options])})"
    plan.replace(code, begun, new, f"{rows.value} keeps its rows → hotloop.feed.Rows")
    for one, conversion in found.items():
        assert conversion is not None
        value = appends[one].args[0].value
        text = _alone(code, conversion.row)
        if code.source(value).count("#") > text.count("#"):
            raise _cannot(code, value, "a comment stands where nothing is left to say it of")
        plan.rewrite(code, *code.span(value), text, "")
    plan.replace(code, call, f"{rows.value}.{name}()", f"{code.source(call.func)} of all rows at once")
    return True


def _append_of(code: Code, name: cst.Name) -> cst.Call | None:
    """``rows.append(...)`` as a statement."""
    method = code.parents.get(name)
    call = code.parents.get(method) if method is not None else None
    plain = (
        isinstance(method, cst.Attribute)
        and method.value is name
        and method.attr.value == "append"
        and isinstance(call, cst.Call)
        and call.func is method
        and len(call.args) == 1
        and not call.args[0].star
        and call.args[0].keyword is None
        and isinstance(code.parents.get(call), cst.Expr)
    )
    return call if plain and isinstance(call, cst.Call) else None


def _begun(
    code: Code, function: cst.FunctionDef, rows: cst.Name, names: list[cst.Name], appended: set[cst.Name]
) -> cst.List:
    """The empty list that all rows go into and nothing else reads. Raises Cannot."""
    whole = code.parents.get(code.parents.get(rows, rows))
    statement = code.parents.get(whole) if whole is not None else None
    again = None
    if isinstance(statement, cst.Assign) and len(statement.targets) == 1:
        target = statement.targets[0].target
        again = target if isinstance(target, cst.Name) and target.value == rows.value else None
    begun = None
    for one in names:
        value = value_of(code, one)
        empty = isinstance(value, cst.List) and not value.elements and _has_one_target(code, one)
        if isinstance(value, cst.List) and empty and begun is None and one is not again:
            begun = value
            continue
        if one is rows or one is again:
            continue
        if one in appended and (again is None or code.begin(one) < code.begin(again)):
            continue
        if again is not None and one not in appended and _behind(code, statement, one):
            continue
        raise _cannot(code, one, f"{rows.value} is read or bound besides")
    if begun is None or code.begin(begun) > code.begin(rows):
        raise _cannot(code, rows, f"{rows.value} is not begun as an empty list here")
    for one in names:
        if code.function_of(one) is not function:
            raise _cannot(code, one, f"{rows.value} is read in another function")
    declared: list[cst.Global | cst.Nonlocal] = [*code.nodes(cst.Global), *code.nodes(cst.Nonlocal)]
    if any(item.name.value == rows.value for each in declared for item in each.names):
        raise _cannot(code, rows, f"{rows.value} is no name of the function's own")
    return begun


def _has_one_target(code: Code, bound: cst.Name) -> bool:
    """Whether a name is bound in ``rows = []`` or ``xs, ys = [], []``, and no other name to the same."""
    assign = code.parents.get(code.parents.get(bound, bound))
    while isinstance(assign, cst.Tuple | cst.List | cst.AssignTarget):
        assign = code.parents.get(assign)
    return isinstance(assign, cst.Assign) and len(assign.targets) == 1


def _behind(code: Code, statement: cst.CSTNode | None, name: cst.Name) -> bool:
    """Whether a name stands behind a statement, in its own block."""
    line = code.statement_of(statement) if statement is not None else None
    block = code.parents.get(line) if line is not None else None
    return block is not None and code.holds(block, name) and code.end(line) <= code.begin(name)  # type: ignore[arg-type]


def _require_known(code: Code, function: cst.FunctionDef, value: cst.BaseExpression) -> None:
    """Raises Cannot where an option may have another value when the list is begun."""
    root = value
    while isinstance(root, cst.Attribute):
        root = root.value
    if not isinstance(root, cst.Name):
        return
    for one in code.assignments(root, root.value):
        if code.holds(function, one.node) and not isinstance(one.node, cst.Param):
            raise _cannot(code, value, f"{root.value} is bound in the function")
