"""What stays in half precision behind statements that are put under autocast, and how it is read there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import libcst as cst

from hotloop.measure.places import Frame
from hotloop.remedy.source import calls
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot

#: What gives another type, whatever it is asked of.
_OTHER: Final = frozenset(
    [
        "float",
        "double",
        "item",
        "tolist",
        "long",
        "int",
        "bool",
        "argmax",
        "argmin",
        "shape",
        "size",
        "dim",
        "ndim",
        "dtype",
        "device",
        "backward",
    ]
)


def look_behind(
    plan: Plan, code: Code, wrapped: Sequence[cst.CSTNode], backward: cst.CSTNode, dtype: str
) -> None:
    """Remark on every name that may be of ``dtype`` where it is read behind ``wrapped``.

    Raises Cannot where numpy, which has no bfloat16, is to read it.
    """
    for name, bound in _halved(plan, code, wrapped).items():
        reads = _reads(code, bound, code.span(wrapped[-1])[1])
        if any(_inside(code, read, backward) for read in reads):
            continue  # the loss
        reads = [read for read in reads if not _harmless(code, read)]
        lost = [read for read in reads if _by_numpy(code, read)]
        if lost and dtype == "bfloat16":
            line = code.line(lost[0])
            words = f"write {name}.float() there; then autocast around the forward pass and the loss"
            raise Cannot(
                f"{name} may be bfloat16 here, which numpy does not have", str(code.path), line, write=words
            )
        if reads:
            place = f"{code.path.name}:{code.line(reads[0])}"
            plan.remark(f"{name} may be {dtype} where {place} reads it: write {name}.float() there")


def called(code: Code, frame: Frame) -> cst.Call | None:
    """The call a frame was in; of several that begin there the outermost."""
    return code.call_at(frame.line, frame.col) or next(
        (c for c in code.nodes(cst.Call) if code.begin(c) == (frame.line, frame.col)), None
    )


def _halved(plan: Plan, code: Code, wrapped: Sequence[cst.CSTNode]) -> dict[str, cst.Name]:
    """Names bound to what the model gave, or to what was computed of it; losses are float32."""
    forwards = {
        called(code, frame)
        for site in calls.forwards(plan)
        for frame in site.frames
        if frame.file == str(code.path)
    }
    found: dict[str, cst.Name] = {}
    for statement in wrapped:
        for node in code.nodes(cst.CSTNode, statement):  # type: ignore[type-abstract]
            for target, value in _bindings(node):
                half = _half(value, forwards, found)
                for name in _names(target):
                    found.pop(name.value, None)
                    if half:
                        found[name.value] = name
    return found


def _bindings(node: cst.CSTNode) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
    if isinstance(node, cst.Assign):
        yield from ((target.target, node.value) for target in node.targets)
    elif isinstance(node, cst.AnnAssign | cst.NamedExpr) and node.value is not None:
        yield node.target, node.value


def _names(target: cst.BaseExpression) -> list[cst.Name]:
    if isinstance(target, cst.Tuple | cst.List):
        return [name for element in target.elements for name in _names(element.value)]
    return [target] if isinstance(target, cst.Name) else []


def _half(node: cst.CSTNode, forwards: set[cst.Call | None], found: dict[str, cst.Name]) -> bool:
    """Whether an expression may give what the model computed in half precision."""
    if isinstance(node, cst.Name):
        return node.value in found
    if isinstance(node, cst.Comparison | cst.Lambda | cst.FormattedString):
        return False
    if isinstance(node, cst.Call):
        name = last_name(node.func)
        if name in _OTHER or any(word in name.lower() for word in ("loss", "criterion", "entropy")):
            return False
        inner = [argument.value for argument in node.args]
        owner = [node.func.value] if isinstance(node.func, cst.Attribute) else []
        return node in forwards or any(_half(one, forwards, found) for one in (*owner, *inner))
    if isinstance(node, cst.Attribute):
        return node.attr.value not in _OTHER and _half(node.value, forwards, found)
    if isinstance(node, cst.Subscript):
        return _half(node.value, forwards, found)
    return any(_half(child, forwards, found) for child in node.children)


def _reads(code: Code, bound: cst.Name, end: int) -> list[cst.CSTNode]:
    """Where a name is read behind a place, until it is bound again."""
    known = code.assignments(bound, bound.value)
    later = [code.statement_of(one.node) for one in known if code.span(one.node)[0] >= end]
    limit = min((code.span(one)[1] for one in later if one is not None), default=len(code.text.text))
    nodes = {access.node for one in known for access in one.references}
    reads = [node for node in nodes if end <= code.span(node)[0] < limit]
    return sorted(reads, key=code.begin)


def _inside(code: Code, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
    start, end = code.span(outer)
    return start <= code.span(node)[0] < end


def _followed(code: Code, node: cst.CSTNode) -> tuple[list[str], cst.CSTNode]:
    """The attributes asked of a name, one of another, and what stands around the whole."""
    names: list[str] = []
    while True:
        parent = code.parents[node]
        if isinstance(parent, cst.Attribute) and parent.value is node:
            names.append(parent.attr.value)
        elif not (
            (isinstance(parent, cst.Call) and parent.func is node)
            or (isinstance(parent, cst.Subscript) and parent.value is node)
        ):
            return names, parent
        node = parent


def _harmless(code: Code, node: cst.CSTNode) -> bool:
    names, around = _followed(code, node)
    other = isinstance(around, cst.Comparison | cst.ComparisonTarget | cst.Del)
    return other or any(name in _OTHER for name in names)


def _by_numpy(code: Code, node: cst.CSTNode) -> bool:
    names, around = _followed(code, node)
    call = code.parents[around] if isinstance(around, cst.Arg) else None
    given = isinstance(call, cst.Call) and code.qualified(call.func).startswith("numpy.")
    return given or "numpy" in names
